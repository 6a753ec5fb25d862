// What the files about cuDNN share within the virtual card.
#ifndef DRYFIT_CUDNN_PLANS_H
#define DRYFIT_CUDNN_PLANS_H

#include <stdbool.h>

const char *cudnn_answer(const char *question);   // as cudnn_answers.h has them; NULL where there is none

#endif
