// What NCCL takes of the card for itself: for each communicator, from the moment it would on a card.
#ifndef DRYFIT_NCCL_BUFFERS_H
#define DRYFIT_NCCL_BUFFERS_H

#include "card.h"

typedef struct Buffers Buffers;   // of one communicator

// NULL where the card, or the host, has no room for them. They are counted against the card as expected.
Buffers *buffers_of_communicator(int ranks, int rank, int device);
bool connect_for_collectives(Buffers *buffers);       // before the first; false: the card is full
bool connect_to_peer(Buffers *buffers, int peer);     // before the first send to this rank, or receipt from it
void give_buffers_back(Buffers *buffers);
int ncclGetVersion(int *version);

#endif
