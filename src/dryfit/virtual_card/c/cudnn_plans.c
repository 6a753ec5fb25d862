// cuDNN's graph interface, by which torch convolves and attends: descriptors are kept here, and what only the real
// cuDNN knows, which plans there are and the workspace of each, is asked for in one line each (cudnn_answers.h).
//
// Where there is no answer, there is one configuration for every question, without a workspace, and that is counted.
#include "card.h"
#include "cudnn_answers.h"
#include "cudnn_graphs.h"
#include "cudnn_plans.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct Attribute {
  int name, type;
  int64_t count;
  struct Attribute *next;
  _Alignas(16) char bytes[];
} Attribute;

// Of the configurations that heuristics give, this one is of an engine that the real cuDNN has only on a card.
enum { FIRST_OFFERED = 0, NOT_GIVEN = -1, NEEDS_CARD = -2 };

typedef struct Descriptor {
  int kind;
  _Atomic int holders;        // torch, and the descriptors it is an attribute of, which may be there when torch has let go
  Attribute *attributes;      // in the order in which they were set
  char *text;                 // of a graph and of what is made from it, once finalised; of a given configuration, its heuristics'
  const char *given;          // the answer to heuristics; of a configuration and of its engine, the place in it
  int position;               // of a configuration, among those given
  Graph *graph;
  size_t workspace_bytes;     // of a plan
  bool is_answered;
  char *json;                 // what cuDNN writes of it
} Descriptor;

// ---- text -----------------------------------------------------------------------------------------------------------
typedef struct {
  char *text;
  size_t length, room;
  bool failed;
} Text;
static void add_bytes(Text *to, const char *bytes, size_t n) {
  if (to->length + n + 1 > to->room) {
    size_t room = (to->room + n + 1) * 2;
    char *wider = realloc(to->text, room);
    if (!wider) {
      to->failed = true;
      return;
    }
    to->text = wider;
    to->room = room;
  }
  memcpy(to->text + to->length, bytes, n);
  to->length += n;
  to->text[to->length] = '\0';
}
static void add(Text *to, const char *text) { add_bytes(to, text, strlen(text)); }
static void add_number(Text *to, long long n) {
  char digits[24];
  snprintf(digits, sizeof digits, "%lld", n);
  add(to, digits);
}

enum { MOST_DESCRIPTORS = 1024 };
typedef struct {
  const Descriptor *at[MOST_DESCRIPTORS];
  int count;
} Written;

static void write_descriptor(Text *to, const Descriptor *d, Written *written);
static void write_attribute(Text *to, const Attribute *a, Written *written) {
  add_number(to, a->name);
  add(to, ":");
  add_number(to, a->type);
  add(to, "=");
  for (int64_t i = 0; i < a->count; i++) {
    if (a->type == DESCRIPTOR_TYPE) {
      if (i) add(to, "+");
      write_descriptor(to, ((Descriptor *const *)a->bytes)[i], written);
    } else if (a->type == INT64_TYPE) {
      if (i) add(to, ".");
      add_number(to, ((const int64_t *)a->bytes)[i]);
    } else {
      for (size_t k = 0; k < bytes_of_type(a->type); k++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", (unsigned char)a->bytes[(size_t)i * bytes_of_type(a->type) + k]);
        add(to, digits);
      }
    }
  }
}
static void write_descriptor(Text *to, const Descriptor *d, Written *written) {
  if (!d) {
    to->failed = true;
    return;
  }
  if (d->text) {
    add(to, d->text);
    return;
  }
  for (int i = 0; i < written->count; i++)
    if (written->at[i] == d) {
      add(to, "#");
      add_number(to, i);
      return;
    }
  add_number(to, d->kind);
  add(to, "(");
  for (const Attribute *a = d->attributes; a; a = a->next) {
    write_attribute(to, a, written);
    if (a->next) add(to, ",");
  }
  add(to, ")");
  if (written->count < MOST_DESCRIPTORS) written->at[written->count++] = d;
  else to->failed = true;
}
static char *text_of(const Descriptor *d) {
  Text text = {0};
  Written written = {.count = 0};
  write_descriptor(&text, d, &written);
  if (!text.failed) return text.text;
  free(text.text);
  return NULL;
}
static const char *answer_to(const char *question, long number, const char *text) {
  if (!text) return NULL;
  Text whole = {0};
  add(&whole, question);
  if (number >= 0) {
    add_number(&whole, number);
    add(&whole, " ");
  }
  add(&whole, text);
  const char *answer = whole.failed ? NULL : cudnn_answer(whole.text);
  free(whole.text);
  return answer;
}
static int status_of(const char *answer) { return atoi(answer); }
static const char *after_blank(const char *text) {
  const char *blank = strchr(text, ' ');
  return blank ? blank + 1 : text + strlen(text);
}

// ---- descriptors ----------------------------------------------------------------------------------------------------
static const Attribute *attribute(const Descriptor *d, int name) {
  const Attribute *a = d->attributes;
  while (a && a->name != name) a = a->next;
  return a;
}
static const Descriptor *descriptor_in(const Descriptor *d, int name) {
  const Attribute *a = attribute(d, name);
  return a && a->type == DESCRIPTOR_TYPE && a->count ? *(Descriptor *const *)a->bytes : NULL;
}
enum { BAD_PARAMETER = 2000, ALLOCATION_FAILED = 4003 };   // cudnnStatus_t

EXPORT int cudnnBackendCreateDescriptor(int kind, Descriptor **out) {
  *out = calloc(1, sizeof **out);
  if (!*out) return ALLOCATION_FAILED;
  (*out)->kind = kind;
  (*out)->holders = 1;
  (*out)->position = -1;
  return OK;
}
EXPORT int cudnnBackendDestroyDescriptor(Descriptor *d);
static void free_attribute(Attribute *a) {
  for (int64_t i = 0; a->type == DESCRIPTOR_TYPE && i < a->count; i++)
    cudnnBackendDestroyDescriptor(((Descriptor **)a->bytes)[i]);
  free(a);
}
EXPORT int cudnnBackendDestroyDescriptor(Descriptor *d) {
  if (!d || atomic_fetch_sub(&d->holders, 1) > 1) return OK;
  for (Attribute *a = d->attributes, *next; a; a = next) {
    next = a->next;
    free_attribute(a);
  }
  free(d->text);
  free(d->json);
  free(d);
  return OK;
}
EXPORT int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t count, const void *value) {
  if (type == HANDLE_TYPE || d->kind == VARIANT_PACK_KIND || count < 0 || !value) return OK;
  size_t bytes = bytes_of_type(type) * (size_t)count;
  Attribute *a = malloc(sizeof *a + bytes);
  if (!a) return ALLOCATION_FAILED;
  *a = (Attribute){.name = name, .type = type, .count = count};
  memcpy(a->bytes, value, bytes);
  for (int64_t i = 0; type == DESCRIPTOR_TYPE && i < count; i++)
    if (((Descriptor **)a->bytes)[i]) atomic_fetch_add(&((Descriptor **)a->bytes)[i]->holders, 1);
  Attribute **at = &d->attributes;
  while (*at && (*at)->name != name) at = &(*at)->next;
  if (*at) {   // set once more
    a->next = (*at)->next;
    free_attribute(*at);
  }
  *at = a;
  return OK;
}

// ---- what is asked --------------------------------------------------------------------------------------------------
enum { TENSOR_TYPE = 901, DIMENSIONS = 902 };
static int64_t elements_of(const Descriptor *tensor) {
  const Attribute *sizes = tensor ? attribute(tensor, DIMENSIONS) : NULL;
  int64_t elements = sizes != NULL;
  for (int64_t k = 0; sizes && k < sizes->count; k++) elements *= ((const int64_t *)sizes->bytes)[k];
  return elements;
}
static size_t element_bytes(const Descriptor *tensor) {
  enum { DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };   // cudnnDataType_t; the others that torch convolves are of four bytes
  const Attribute *type = tensor ? attribute(tensor, TENSOR_TYPE) : NULL;
  int value = type ? *(const int *)type->bytes : 0;
  return value == DOUBLE ? 8 : value == HALF || value == BFLOAT16 ? 2 : 4;
}

static Graph *graph_of(const Descriptor *d) {   // of a finalised descriptor
  static const struct { int kind, weights; } operations[] = {{FORWARD_KIND, 703}, {DATA_KIND, 709}, {FILTER_KIND, 715}};
  char hash[HASH_DIGITS + 1];
  hash_of(d->text, strlen(d->text), hash);
  const Descriptor *operation = descriptor_in(d, GRAPH_OPERATIONS);
  for (size_t i = 0; operation && i < sizeof operations / sizeof *operations; i++) {
    if (operation->kind != operations[i].kind) continue;
    size_t tensors_bytes = 0;
    for (int part = 0; part < 3; part++) {   // the weights' attribute is before those of input and output
      const Descriptor *tensor = descriptor_in(operation, operations[i].weights + part);
      tensors_bytes += (size_t)elements_of(tensor) * element_bytes(tensor);
    }
    int64_t weights = elements_of(descriptor_in(operation, operations[i].weights));
    return graph_with(hash, operation->kind, weights, tensors_bytes);
  }
  return graph_with(hash, 0, 0, 0);
}

// An answer to heuristics is STATUS DROPPED and then the configurations.
static const char *configurations_in(const char *answer) { return after_blank(after_blank(answer)); }
static bool drops(const char *answer, int engine) {
  for (const char *at = after_blank(answer); *at && *at != ' ' && *at != '-'; at += *at == '.') {
    char *end;
    long dropped = strtol(at, &end, 10);
    if (dropped == engine) return true;
    if (end == at) return false;
    at = end;
  }
  return false;
}
static bool drops_any(const char *answer) { return after_blank(answer)[0] >= '0' && after_blank(answer)[0] <= '9'; }
// Whether cuDNN offers nothing, and torch has nothing else to ask: attention, whose kernels are compiled and loaded while
// plans are made, which needs a driver.
static bool is_silent(const Descriptor *heuristics, const char *answer) {
  enum { MODE = 200, FALLBACK = 2 };
  const Attribute *mode = attribute(heuristics, MODE);
  bool is_last = !heuristics->graph || !heuristics->graph->operation || (mode && *(const int *)mode->bytes == FALLBACK);
  return is_last && !status_of(answer) && !*configurations_in(answer);
}
static int count_in(const char *configurations) {
  int n = *configurations != '\0';
  for (const char *c = configurations; *c; c++) n += *c == ' ';
  return n;
}
static int before_offered(const Descriptor *heuristics) {   // configurations that are given and were not offered
  return takes_gemm() && drops(heuristics->given, gemm_engine(heuristics->graph));
}
static void give_configuration(Descriptor *to, const Descriptor *heuristics, int i) {
  int before = before_offered(heuristics);
  to->graph = heuristics->graph;
  to->position = i < before ? NEEDS_CARD : i - before;
  free(to->text);
  to->text = strdup(heuristics->text);
  to->given = configurations_in(heuristics->given);
  for (int k = 0; k < to->position; k++) to->given = after_blank(to->given);
}

// The part of `INDEX/NOTES/BEHAVIOURS/KNOBS` with this number.
static const char *part_of(const char *configuration, int number) {
  const char *at = configuration;
  for (int i = 0; at && i < number; i++) at = at + strcspn(at, "/ ") + (at[strcspn(at, "/ ")] == '/');
  return at;
}
// The numbers there, `most` at most; how many there are.
static int64_t numbers_in(const char *at, int *out, int64_t most) {
  int64_t n = 0;
  while (*at >= '0' && *at <= '9') {
    char *end;
    long value = strtol(at, &end, 10);
    if (out && n < most) out[n] = (int)value;
    n++;
    at = *end == '.' ? end + 1 : end;
  }
  return n;
}

// What cuDNN writes of a plan, in JSON: torch looks there for engines with known errors. Of one that needs a card it is
// that of the first plan which does not, with the other engine.
static void write_plan(Text *to, const Descriptor *plan) {
  bool needs_card = plan->position == NEEDS_CARD;
  const char *answer = answer_to("J ", needs_card ? FIRST_OFFERED : plan->position, plan->text);
  const char *json = answer && !status_of(answer) ? after_blank(answer) : "{}", *engine = strstr(json, "\"engine\":");
  if (!needs_card || !engine) {
    add(to, json);
    return;
  }
  add_bytes(to, json, (size_t)(engine - json));
  add(to, "\"engine\":{\"engineId\":");
  add_number(to, gemm_engine(plan->graph));
  add(to, ",\"smVersion\":");
  add_number(to, card()->sm * 10);
  add(to, ",\"knobChoices\":{}}}");
}
static int get_json(Descriptor *plan, int64_t wanted, int64_t *count, char *out) {
  if (!plan->json) {
    Text text = {0};
    write_plan(&text, plan);
    plan->json = text.text;
  }
  size_t size = plan->json ? strlen(plan->json) + 1 : 0;
  if (count) *count = (int64_t)size;
  if (out && wanted > 0) memcpy(out, plan->json, size < (size_t)wanted ? size : (size_t)wanted);
  return OK;
}

static int finalize_plan(Descriptor *plan) {
  const Descriptor *from = descriptor_in(plan, PLAN_CONFIGURATION);
  if (!from) return BAD_PARAMETER;
  plan->graph = from->graph;
  plan->position = from->position;
  plan->text = from->text && from->position != NOT_GIVEN ? strdup(from->text) : NULL;
  if (from->position == NEEDS_CARD) {
    plan->workspace_bytes = gemm_bytes(plan->graph);
    plan->is_answered = true;
    return OK;
  }
  bool is_given = from->position >= FIRST_OFFERED;
  const char *answer = answer_to(is_given ? "P " : "X ", is_given ? from->position : -1, from->text);
  if (!answer) return OK;
  plan->is_answered = true;
  plan->workspace_bytes = strtoull(after_blank(answer), NULL, 10);
  return status_of(answer);
}

EXPORT int cudnnBackendFinalize(Descriptor *d) {
  const Descriptor *from = NULL;
  switch (d->kind) {
    case GRAPH_KIND:
      d->text = text_of(d);
      d->graph = d->text ? graph_of(d) : NULL;
      return OK;
    case HEURISTICS_KIND: from = descriptor_in(d, HEURISTICS_GRAPH); break;
    case ENGINE_KIND: from = descriptor_in(d, ENGINE_GRAPH); break;
    case CONFIGURATION_KIND: from = descriptor_in(d, CONFIGURATION_ENGINE); break;
    case PLAN_KIND: return finalize_plan(d);
    default: return OK;
  }
  d->graph = from ? from->graph : NULL;
  d->text = from && from->text ? text_of(d) : NULL;
  if (d->kind == CONFIGURATION_KIND) return OK;
  const char *answer = answer_to(d->kind == ENGINE_KIND ? "E " : "H ", -1, d->text);
  if (!answer || (d->kind == HEURISTICS_KIND && is_silent(d, answer))) return OK;
  d->given = d->kind == ENGINE_KIND ? after_blank(answer) : answer;
  if (d->kind == HEURISTICS_KIND && d->graph && drops_any(answer)) {
    if (drops(answer, gemm_engine(d->graph))) d->graph->begins_with_gemm = true;
    else d->graph->begins_with_another = true;
  }
  return status_of(answer);
}

// ---- what torch reads -----------------------------------------------------------------------------------------------
static int get_notes(const Descriptor *engine, int part, int64_t wanted, int64_t *count, void *out) {
  bool is_given = engine->given && engine->position != NEEDS_CARD;
  int64_t n = is_given ? numbers_in(part_of(engine->given, part), out, wanted) : 0;
  if (count) *count = n;
  return OK;
}
static int get_results(const Descriptor *heuristics, int64_t wanted, int64_t *count, Descriptor **out) {
  int64_t n = count_in(configurations_in(heuristics->given)) + before_offered(heuristics);
  if (count) *count = out && wanted > 0 && wanted < n ? wanted : n;
  for (int64_t i = 0; out && i < wanted && i < n; i++) give_configuration(out[i], heuristics, (int)i);
  return OK;
}
static int get_knobs(const Descriptor *configuration, int64_t wanted, int64_t *count, Descriptor **out) {
  bool is_given = configuration->given && configuration->position != NEEDS_CARD;
  const char *at = is_given ? part_of(configuration->given, 3) : "";
  int64_t n = 0;
  for (; *at >= '0' && *at <= '9'; n++) {
    char *end;
    int knob = (int)strtol(at, &end, 10);
    int64_t value = *end == '=' ? strtoll(end + 1, &end, 10) : 0;
    if (out && n < wanted) {
      cudnnBackendSetAttribute(out[n], KNOB_CHOICE_KNOB, KNOB_TYPE, 1, &knob);
      cudnnBackendSetAttribute(out[n], KNOB_CHOICE_VALUE, INT64_TYPE, 1, &value);
    }
    at = *end == '.' ? end + 1 : end;
  }
  if (count) *count = n;
  return OK;
}
static int get_workspace(const Descriptor *plan, int64_t *count, int64_t *out) {
  if (!plan->is_answered) {
    if (plan->graph && plan->graph->operation)
      UNFAITHFUL("cudnnBackendGetAttribute(EXECUTION_PLAN_WORKSPACE_SIZE) of a convolution");
    else
      UNFAITHFUL("cudnnBackendGetAttribute(EXECUTION_PLAN_WORKSPACE_SIZE) of attention");
  }
  if (count) *count = 1;
  if (out) *out = (int64_t)plan->workspace_bytes;
  return OK;
}

EXPORT int cudnnBackendGetAttribute(Descriptor *d, int name, int type, int64_t wanted, int64_t *count, void *out) {
  Descriptor **descriptors = type == DESCRIPTOR_TYPE ? out : NULL;
  if (name == PLAN_WORKSPACE) return get_workspace(d, count, wanted > 0 ? out : NULL);
  if (name == PLAN_JSON) return get_json(d, wanted, count, out);
  if (name == ENGINE_NOTES) return get_notes(d, 1, wanted, count, out);
  if (name == ENGINE_BEHAVIOURS) return get_notes(d, 2, wanted, count, out);
  if (d->given) {
    if (name == HEURISTICS_RESULTS) return get_results(d, wanted, count, descriptors);
    if (name == CONFIGURATION_KNOBS) return get_knobs(d, wanted, count, descriptors);
    if (name == CONFIGURATION_ENGINE && descriptors && wanted > 0) {
      descriptors[0]->given = d->given;
      descriptors[0]->position = d->position;
      descriptors[0]->graph = d->graph;
    }
    if (name == ENGINE_INDEX && out && wanted > 0) {
      *(int64_t *)out = d->position == NEEDS_CARD ? gemm_engine(d->graph) : strtoll(d->given, NULL, 10);
      if (count) *count = 1;
      return OK;
    }
  }
  if (name == HEURISTICS_RESULTS && descriptors && wanted > 0) descriptors[0]->graph = d->graph;
  const Attribute *set = attribute(d, name);
  if (set && set->type == type && type != DESCRIPTOR_TYPE) {
    if (count) *count = set->count;
    size_t there = bytes_of_type(type) * (size_t)set->count, room = bytes_of_type(type) * (size_t)(wanted > 0 ? wanted : 0);
    if (out) memcpy(out, set->bytes, there < room ? there : room);
    return OK;
  }
  bool exists = type == DESCRIPTOR_TYPE || type == INT64_TYPE;   // descriptors and sizes do; notes do not
  if (count) *count = exists;
  if (!out || wanted <= 0 || type == DESCRIPTOR_TYPE) return OK;   // descriptors are the caller's own
  memset(out, 0, bytes_of_type(type) * (size_t)wanted);
  return OK;
}
EXPORT void cudnnGetLastErrorString(char *out, size_t size) {
  if (size) snprintf(out, size, "virtual cuDNN");
}

EXPORT int cudnnBackendExecute(void *handle, const Descriptor *plan, const Descriptor *tensors) {
  if (plan->graph && (plan->is_answered || plan->graph->operation))
    graph_runs(plan->graph, plan, plan->workspace_bytes, plan->position == NEEDS_CARD, plan->is_answered);
  return OK;
}
