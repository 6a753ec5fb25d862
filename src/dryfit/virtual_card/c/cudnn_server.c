// A program of its own that has the real cuDNN loaded, in the mode that needs no card (cuDNN 9.8 and later): every
// question names the card by a description in JSON. It answers the virtual card's questions, one line each
// (cudnn_answers.h), to all who connect, and keeps the answers in a file for those who come later.
//
//     cudnn_server LIBRARY DESCRIPTION ANSWERS LISTENING
//
// LIBRARY is the path of libcudnn_graph.so.9, DESCRIPTION the text of the JSON, ANSWERS the file to add to, and LISTENING
// the number of a descriptor that listens. It is ended by who has started it.
#define _GNU_SOURCE
#include "cudnn_answers.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

typedef void *Made;   // cudnnBackendDescriptor_t
static int (*create)(int kind, Made *out);
static int (*destroy)(Made);
static int (*finalize)(Made);
static int (*set)(Made, int name, int type, int64_t count, const void *value);
static int (*get)(Made, int name, int type, int64_t wanted, int64_t *count, void *out);
static int (*set_callback)(unsigned severities, void *data, void (*function)(int, void *, const void *, const char *));

static Made card;
enum { SUCCESS, BAD_PARAMETER = 2000 };

static _Noreturn void fail(const char *what, const char *why) {
  fprintf(stderr, "dryfit: the server of cuDNN's answers cannot go on: %s: %s\n", what, why);
  exit(1);
}

// ---- from text to descriptors ---------------------------------------------------------------------------------------
enum { MOST_MADE = 4096, MOST_VALUES = 4096 };
static Made made[MOST_MADE];   // for this question, to be destroyed after it
static int made_count;
static Made in_graph[MOST_MADE];   // those of the graph that is read, in the order in which they ended
static int in_graph_count, graph_begins;

static Made make(int kind, int *status) {
  Made d = NULL;
  *status = made_count < MOST_MADE ? create(kind, &d) : BAD_PARAMETER;
  if (!*status) made[made_count++] = d;
  return d;
}
static Made read_descriptor(const char **at, int *status);

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }
static bool skip(const char **at, char expected) { return **at == expected ? ++*at, true : false; }
static int read_number(const char **at) {
  char *end;
  long n = strtol(*at, &end, 10);
  *at = end;
  return (int)n;
}
static void read_attribute(const char **at, Made to, int *status) {
  int name = read_number(at);
  if (!skip(at, ':')) *status = BAD_PARAMETER;
  int type = read_number(at);
  if (!skip(at, '=')) *status = BAD_PARAMETER;
  static __thread int64_t room[16][MOST_VALUES];
  static __thread int depth;
  if (*status || depth == 16) {
    *status = *status ? *status : BAD_PARAMETER;
    return;
  }
  int64_t *values = room[depth++], count = 0;
  size_t bytes = 0;
  if (type == DESCRIPTOR_TYPE)
    do ((Made *)values)[count++] = read_descriptor(at, status);
    while (!*status && count < MOST_VALUES && skip(at, '+'));
  else if (type == INT64_TYPE && **at != ',' && **at != ')')
    do {
      char *end;
      values[count++] = strtoll(*at, &end, 10);
      *at = end;
    } while (count < MOST_VALUES && skip(at, '.'));
  else if (type != INT64_TYPE) {
    for (; bytes < sizeof *room && digit((*at)[0]) >= 0 && digit((*at)[1]) >= 0; *at += 2)
      ((char *)values)[bytes++] = (char)(digit((*at)[0]) << 4 | digit((*at)[1]));
    count = (int64_t)(bytes / bytes_of_type(type));
  }
  depth--;
  if (!*status) *status = set(to, name, type, count, values);
}
static Made read_descriptor(const char **at, int *status) {
  if (skip(at, '#')) {
    int n = read_number(at);
    if (n < 0 || n >= in_graph_count - graph_begins) *status = BAD_PARAMETER;
    return *status ? NULL : in_graph[graph_begins + n];
  }
  int kind = read_number(at), around = graph_begins;
  if (kind == GRAPH_KIND) graph_begins = in_graph_count;   // an operation may have a graph of its own
  Made d = make(kind, status);
  if (!*status && !skip(at, '(')) *status = BAD_PARAMETER;
  while (!*status && !skip(at, ')')) {
    read_attribute(at, d, status);
    if (!*status && **at != ')' && !skip(at, ',')) *status = BAD_PARAMETER;
  }
  int device = kind == HEURISTICS_KIND ? HEURISTICS_DEVICE : kind == ENGINE_KIND ? ENGINE_DEVICE : 0;
  if (!*status && device) *status = set(d, device, DESCRIPTOR_TYPE, 1, &card);
  if (!*status) *status = finalize(d);
  if (kind == GRAPH_KIND) {
    in_graph_count = graph_begins;
    graph_begins = around;
  } else if (!*status && in_graph_count < MOST_MADE) {
    in_graph[in_graph_count++] = d;
  }
  return d;
}
static void destroy_made(void) {
  while (made_count) destroy(made[--made_count]);
}

// ---- heuristics -----------------------------------------------------------------------------------------------------
enum { MOST_CONFIGURATIONS = 1024 };
static char *asked_heuristics;   // those of the last question, with what they gave
static Made configurations[MOST_CONFIGURATIONS];
static int64_t configuration_count;
static char dropped[1024];

// cuDNN tells its log which configurations it leaves out of those it was asked for, in the order of their ranks.
static void note_dropped(int severity, void *data, const void *about, const char *message) {
  (void)severity, (void)data, (void)about;
  static const char engine[] = "{\"engineId\":";
  if (!strstr(message, "engine_config_support_checks")) return;
  for (; *message; message += strlen(message) + 1) {   // its lines are strings, and an empty one comes after the last
    const char *at = strstr(message, engine);
    size_t length = strlen(dropped);
    if (at) snprintf(dropped + length, sizeof dropped - length, "%s%d", length ? "." : "", atoi(at + strlen(engine)));
  }
}
static void forget_heuristics(void) {
  in_graph_count = graph_begins = 0;
  free(asked_heuristics);
  asked_heuristics = NULL;
  configuration_count = 0;
  destroy_made();
}
static int ask_heuristics(const char *text) {
  enum { INFORMATION = 1u << 3 };   // CUDNN_SEV_INFO_EN
  if (asked_heuristics && !strcmp(asked_heuristics, text)) return SUCCESS;
  forget_heuristics();
  int status = SUCCESS;
  const char *at = text;
  Made heuristics = read_descriptor(&at, &status);
  int64_t count = 0, one = 0;
  if (!status) status = get(heuristics, HEURISTICS_RESULTS, DESCRIPTOR_TYPE, 0, &count, NULL);
  if (count > MOST_CONFIGURATIONS) count = MOST_CONFIGURATIONS;
  for (int64_t i = 0; !status && i < count; i++) configurations[i] = make(CONFIGURATION_KIND, &status);
  Made first = status ? NULL : make(CONFIGURATION_KIND, &status);
  dropped[0] = '\0';
  if (!status && set_callback) {
    set_callback(INFORMATION, NULL, note_dropped);
    status = get(heuristics, HEURISTICS_RESULTS, DESCRIPTOR_TYPE, 1, &one, &first);
    set_callback(0, NULL, NULL);
  }
  if (!status) status = get(heuristics, HEURISTICS_RESULTS, DESCRIPTOR_TYPE, count, &configuration_count, configurations);
  if (status) forget_heuristics();
  else asked_heuristics = strdup(text);
  return status;
}

// ---- answers --------------------------------------------------------------------------------------------------------
static void write_list(FILE *to, Made engine, int name, int type) {
  enum { MOST_NOTES = 64 };
  int notes[MOST_NOTES];
  int64_t count = 0;
  if (get(engine, name, type, MOST_NOTES, &count, notes)) count = 0;
  fputc('/', to);
  for (int64_t i = 0; i < count && i < MOST_NOTES; i++) fprintf(to, "%s%d", i ? "." : "", notes[i]);
}
static void write_engine(FILE *to, Made engine) {
  int64_t count = 0, index = -1;
  get(engine, ENGINE_INDEX, INT64_TYPE, 1, &count, &index);
  fprintf(to, " %lld", (long long)index);
  write_list(to, engine, ENGINE_NOTES, NUMERICAL_NOTE_TYPE);
  write_list(to, engine, ENGINE_BEHAVIOURS, BEHAVIOUR_NOTE_TYPE);
  fputc('/', to);
}
static void write_configuration(FILE *to, Made configuration) {
  enum { MOST_KNOBS = 64 };
  int status = SUCCESS, before = made_count;
  int64_t count = 0;
  Made engine = make(ENGINE_KIND, &status), knobs[MOST_KNOBS];
  if (!status) status = get(configuration, CONFIGURATION_ENGINE, DESCRIPTOR_TYPE, 1, &count, &engine);
  if (status) return;
  write_engine(to, engine);
  for (int i = 0; !status && i < MOST_KNOBS; i++) knobs[i] = make(KNOB_CHOICE_KIND, &status);
  if (!status) status = get(configuration, CONFIGURATION_KNOBS, DESCRIPTOR_TYPE, MOST_KNOBS, &count, knobs);
  for (int64_t i = 0; !status && i < count && i < MOST_KNOBS; i++) {
    int knob = 0;
    int64_t n, value = 0;
    get(knobs[i], KNOB_CHOICE_KNOB, KNOB_TYPE, 1, &n, &knob);
    get(knobs[i], KNOB_CHOICE_VALUE, INT64_TYPE, 1, &n, &value);
    fprintf(to, "%s%d=%lld", i ? "." : "", knob, (long long)value);
  }
  while (made_count > before) destroy(made[--made_count]);
}
static void write_plan(FILE *to, Made configuration, int status, bool as_json) {
  int64_t count = 0, workspace = 0;
  char *json = NULL;
  Made plan = NULL;
  if (!status) status = create(PLAN_KIND, &plan);
  if (!status) status = set(plan, PLAN_CONFIGURATION, DESCRIPTOR_TYPE, 1, &configuration);
  if (!status) status = set(plan, PLAN_DEVICE, DESCRIPTOR_TYPE, 1, &card);
  if (!status) status = finalize(plan);
  if (!status) status = get(plan, PLAN_WORKSPACE, INT64_TYPE, 1, &count, &workspace);
  if (!status && as_json) status = get(plan, PLAN_JSON, CHAR_TYPE, 0, &count, NULL);
  if (!status && as_json && (json = calloc(1, (size_t)count + 1)))
    status = get(plan, PLAN_JSON, CHAR_TYPE, count, &count, json);
  if (plan) destroy(plan);
  if (as_json) fprintf(to, "%d %s", status, !status && json && !strchr(json, '\n') ? json : "{}");
  else fprintf(to, "%d %lld", status, status ? 0 : (long long)workspace);
  free(json);
}
static void write_answer(FILE *to, const char *question) {
  const char *text = question + 2;
  int status = SUCCESS;
  if (question[0] == 'H') {
    status = ask_heuristics(text);
    fprintf(to, "%d %s", status, !status && dropped[0] ? dropped : "-");
    for (int64_t i = 0; !status && i < configuration_count; i++) write_configuration(to, configurations[i]);
  } else if (question[0] == 'P' || question[0] == 'J') {
    int n = read_number(&text);
    status = skip(&text, ' ') ? ask_heuristics(text) : BAD_PARAMETER;
    if (!status && (n < 0 || n >= configuration_count)) status = BAD_PARAMETER;
    write_plan(to, status ? NULL : configurations[n], status, question[0] == 'J');
  } else {
    forget_heuristics();
    Made d = read_descriptor(&text, &status);
    if (question[0] == 'X') write_plan(to, d, status, false);
    else fprintf(to, "%d", status);
    if (question[0] != 'X' && !status) write_engine(to, d);
    destroy_made();
  }
}

static void keep(int file, const char *question, const char *answer) {
  char asked[HASH_DIGITS + 1], check[HASH_DIGITS + 1], *line = NULL;
  hash_of(question, strlen(question), asked);
  int length = asprintf(&line, "%s %s", asked, answer);
  if (length < 0) return;
  hash_of(line, (size_t)length, check);
  char *whole = NULL;
  length = asprintf(&whole, "\n%s %s\n", line, check);   // a new line even after one that a full disk cut
  if (length > 0 && write(file, whole, (size_t)length) < 0) errno = 0;   // then it is asked once more another time
  free(line);
  free(whole);
}

// ---- those who ask --------------------------------------------------------------------------------------------------
enum { MOST_CLIENTS = 256 };
typedef struct {
  char *text;
  size_t length, room;
} Line;
static struct pollfd watched[MOST_CLIENTS + 1];
static Line lines[MOST_CLIENTS + 1];
static int watched_count = 1;

static bool give(int to, const char *text, size_t length) {
  for (ssize_t n; length; text += n, length -= (size_t)n) {
    n = send(to, text, length, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) n = 0;
    if (n < 0) return false;
  }
  return true;
}
static bool serve(int client, Line *line, int answers) {   // false when it has gone
  if (line->length + 1 >= line->room) {
    char *wider = realloc(line->text, line->room = line->room * 2 + (1 << 16));
    if (!wider) return false;
    line->text = wider;
  }
  ssize_t n = read(client, line->text + line->length, line->room - line->length - 1);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  line->length += (size_t)n;
  line->text[line->length] = '\0';
  for (char *end; (end = strchr(line->text, '\n'));) {
    *end = '\0';
    char *answer = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&answer, &length);
    if (!to) return false;
    if (strlen(line->text) > 2) write_answer(to, line->text);
    fclose(to);
    keep(answers, line->text, answer);
    bool given = give(client, answer, length) && give(client, "\n", 1);
    free(answer);
    if (!given) return false;
    line->length -= (size_t)(end + 1 - line->text);
    memmove(line->text, end + 1, line->length + 1);
  }
  return true;
}

static void load(const char *library, const char *description) {
  void *loaded = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (!loaded) fail(library, dlerror());
#define FIND(function, name) \
  if (!(*(void **)&function = dlsym(loaded, name))) fail(library, "lacks " name)
  FIND(create, "cudnnBackendCreateDescriptor");
  FIND(destroy, "cudnnBackendDestroyDescriptor");
  FIND(finalize, "cudnnBackendFinalize");
  FIND(set, "cudnnBackendSetAttribute");
  FIND(get, "cudnnBackendGetAttribute");
  *(void **)&set_callback = dlsym(loaded, "cudnnSetCallback");
  int status = create(DEVICE_KIND, &card);
  if (!status) status = set(card, DEVICE_JSON, CHAR_TYPE, (int64_t)strlen(description) + 1, description);
  if (!status) status = finalize(card);
  if (status) fail(library, "does not take the card's description");
}

int main(int count, char **words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);   // it ends when who has started it is killed
  if (count != 5) fail("its command", "LIBRARY DESCRIPTION ANSWERS LISTENING are expected");
  load(words[1], words[2]);
  int answers = open(words[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  watched[0] = (struct pollfd){.fd = atoi(words[4]), .events = POLLIN};
  while (poll(watched, (nfds_t)watched_count, -1) >= 0 || errno == EINTR) {
    for (int i = watched_count - 1; i > 0; i--) {
      if (!watched[i].revents || serve(watched[i].fd, &lines[i], answers)) continue;
      close(watched[i].fd);
      free(lines[i].text);
      watched[i] = watched[--watched_count];
      lines[i] = lines[watched_count];
    }
    if (watched[0].revents & POLLIN && watched_count <= MOST_CLIENTS) {
      int client = accept4(watched[0].fd, NULL, NULL, SOCK_CLOEXEC);
      if (client < 0) continue;
      watched[watched_count] = (struct pollfd){.fd = client, .events = POLLIN};
      lines[watched_count++] = (Line){0};
    }
  }
  return 1;
}
