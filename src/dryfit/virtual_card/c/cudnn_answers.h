// The questions that the virtual card has for the real cuDNN, and where the answers come from.
//
// A question and its answer are each one line of text. In a question a descriptor of cuDNN's graph interface is written
//
//     KIND(NAME:TYPE=VALUE,...)     its attributes, in the order in which they were set
//
// with the numbers of cudnn_graph.h. A value of type INT64 is written in decimal numbers joined by dots, a descriptor as
// itself, several joined by `+`, and anything else as the digits of its bytes. Within an operation graph a descriptor
// that was written before is `#N`, counted from 0 in the order in which they ended.
//
//     H HEURISTICS          which configurations are there?     STATUS DROPPED INDEX/NOTES/BEHAVIOURS/KNOB=VALUE.... ...
//     P N HEURISTICS        the plan of configuration N?        STATUS WORKSPACE
//     J N HEURISTICS        how is that plan written in JSON?  STATUS JSON
//     E ENGINE              what is this engine?                STATUS INDEX/NOTES/BEHAVIOURS/
//     X CONFIGURATION       the plan of this configuration?     STATUS WORKSPACE
//
// Lists are joined by dots; DROPPED is `-` or the engines of configurations that cuDNN ranks before the first one
// offered, and does not offer without a card.
//
// A file of answers has a line for each: the hash of the question, the answer, and the hash of these two.
#ifndef DRYFIT_CUDNN_ANSWERS_H
#define DRYFIT_CUDNN_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// Of cudnn_graph.h; the numbers are the same in all versions of cuDNN 9.
enum { POINTWISE_KIND, CONVOLUTION_KIND, ENGINE_KIND, CONFIGURATION_KIND, HEURISTICS_KIND, PLAN_KIND,
       KNOB_CHOICE_KIND = 7, FORWARD_KIND = 10, FILTER_KIND, DATA_KIND, GRAPH_KIND = 15, VARIANT_PACK_KIND,
       TENSOR_KIND, DEVICE_KIND = 38 };
enum { HANDLE_TYPE, BOOLEAN_TYPE = 2, INT64_TYPE, FLOAT_TYPE, DOUBLE_TYPE, POINTER_TYPE, KNOB_TYPE = 9,
       NUMERICAL_NOTE_TYPE = 11, DESCRIPTOR_TYPE = 15, BEHAVIOUR_NOTE_TYPE = 19, CHAR_TYPE = 24, FRACTION_TYPE = 26 };
enum { HEURISTICS_GRAPH = 201, HEURISTICS_RESULTS = 202, HEURISTICS_DEVICE = 204, CONFIGURATION_ENGINE = 300,
       CONFIGURATION_KNOBS = 302, PLAN_CONFIGURATION = 401, PLAN_WORKSPACE = 402, PLAN_JSON = 405, PLAN_DEVICE = 407, KNOB_CHOICE_KNOB = 600,
       KNOB_CHOICE_VALUE = 601, GRAPH_OPERATIONS = 801, ENGINE_GRAPH = 1300, ENGINE_INDEX = 1301, ENGINE_NOTES = 1303,
       ENGINE_BEHAVIOURS = 1305, ENGINE_DEVICE = 1307, DEVICE_JSON = 2702 };

static inline size_t bytes_of_type(int type) {
  switch (type) {
    case BOOLEAN_TYPE: case CHAR_TYPE: return 1;
    case HANDLE_TYPE: case INT64_TYPE: case DOUBLE_TYPE: case POINTER_TYPE: case DESCRIPTOR_TYPE: return 8;
    case FRACTION_TYPE: return 16;
    default: return 4;   // enumerations, int32, float
  }
}

// FNV-1a with 128 bits, as 32 digits.
enum { HASH_DIGITS = 32 };
static inline void hash_of(const char *text, size_t length, char digits[HASH_DIGITS + 1]) {
  unsigned __int128 hash = ((unsigned __int128)0x6c62272e07bb0142u << 64) | 0x62b821756295c58du;
  const unsigned __int128 prime = ((unsigned __int128)0x0000000001000000u << 64) | 0x000000000000013bu;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * prime;
  snprintf(digits, HASH_DIGITS + 1, "%016llx%016llx", (unsigned long long)(hash >> 64), (unsigned long long)hash);
}

#endif
