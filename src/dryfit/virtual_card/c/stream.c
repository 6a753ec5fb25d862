// Streams, events and graph capture. Nothing takes time: what is launched has finished.
#include "card.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- streams: the handle is a number with the stream's priority in its low bits, so a stale one harms nobody --------
#define PRIORITY_BITS 7
#define NON_BLOCKING 8
#define GREATEST_PRIORITY (-5)

EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = GREATEST_PRIORITY;
  return OK;
}
int create_stream(void **stream, unsigned flags, int priority) {
  if (priority > 0) priority = 0;
  if (priority < GREATEST_PRIORITY) priority = GREATEST_PRIORITY;
  *stream = (void *)((uintptr_t)new_handle() | (uintptr_t)-priority | (flags & 1 ? NON_BLOCKING : 0));
  return OK;
}
int stream_priority(const void *stream) {
  return (uintptr_t)stream < 256 ? 0 : -(int)((uintptr_t)stream & PRIORITY_BITS);   // 0, 1, 2 are default streams
}
EXPORT int cudaStreamCreate(void **stream) { return create_stream(stream, 0, 0); }
EXPORT int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return create_stream(stream, flags, 0); }
EXPORT int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  return create_stream(stream, flags, priority);
}
EXPORT int cudaStreamGetPriority(void *stream, int *priority) {
  *priority = stream_priority(stream);
  return OK;
}
EXPORT int cudaStreamGetFlags(void *stream, unsigned *flags) {
  *flags = (uintptr_t)stream >= 256 && ((uintptr_t)stream & NON_BLOCKING);
  return OK;
}
EXPORT int cudaStreamGetDevice(void *stream, int *device) {
  *device = current_device();
  return OK;
}

// ---- capture: which streams and events take part in which; it spreads along the waits for events --------------------
enum { CAPTURE_GLOBAL, CAPTURE_THREAD, CAPTURE_RELAXED };   // cudaStreamCaptureMode
typedef struct {
  const void *who;
  unsigned long long id;
  int mode;
  pthread_t thread;
} Member;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Member *members;
static int room;
static _Atomic int member_count;   // read without the lock: nothing captures, as a rule
static unsigned long long last_id;
static _Thread_local int thread_mode = CAPTURE_GLOBAL;

static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork(void) { pthread_mutex_unlock(&mutex); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

static Member *member(const void *who) {
  for (int i = 0; i < member_count; i++)
    if (members[i].who == who) return &members[i];
  return NULL;
}
static Member *new_member(void) {
  if (member_count == room) {
    int more = room ? 2 * room : 64;
    Member *at = realloc(members, (size_t)more * sizeof *at);
    if (!at) {
      fprintf(stderr, "dryfit: no host memory for a capture of more than %d streams and events.\n", room);
      abort();
    }
    members = at;
    room = more;
  }
  return &members[member_count++];
}
static void join(const void *who, const Member *of) {   // or leave, where there is nothing to join
  Member *now = member(who), copy = of ? *of : (Member){0};
  if (!now && of) now = new_member();
  else if (now && !of) *now = members[--member_count], now = NULL;
  if (!now || !of) return;
  *now = copy;
  now->who = who;
}
static unsigned long long capture_id(const void *who) {
  if (!member_count) return 0;
  pthread_mutex_lock(&mutex);
  Member *found = member(who);
  unsigned long long id = found ? found->id : 0;
  pthread_mutex_unlock(&mutex);
  return id;
}
static bool thread_may_wait(void) {   // is there no capture that forbids this thread to wait for the device?
  if (!member_count || thread_mode == CAPTURE_RELAXED) return true;
  bool may = true;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < member_count; i++) {
    bool mine = pthread_equal(members[i].thread, pthread_self());
    if (members[i].mode == CAPTURE_GLOBAL || (members[i].mode == CAPTURE_THREAD && mine)) may = false;
  }
  pthread_mutex_unlock(&mutex);
  return may;
}

EXPORT int cudaStreamBeginCapture(void *stream, int mode) {
  pthread_mutex_lock(&mutex);
  bool free = !member(stream);
  if (free) join(stream, &(Member){.id = ++last_id, .mode = mode, .thread = pthread_self()});
  pthread_mutex_unlock(&mutex);
  return failed(free ? OK : ILLEGAL_STATE);
}
EXPORT int cudaStreamBeginCaptureToGraph(void *stream, void *graph, const void *dependencies, const void *edges,
                                         size_t count, int mode) {
  return cudaStreamBeginCapture(stream, mode);
}
EXPORT int cudaStreamEndCapture(void *stream, void **graph) {
  pthread_mutex_lock(&mutex);
  Member *found = member(stream);
  unsigned long long id = found ? found->id : 0;
  for (int i = member_count - 1; id && i >= 0; i--)
    if (members[i].id == id) members[i] = members[--member_count];
  pthread_mutex_unlock(&mutex);
  if (!id) return failed(ILLEGAL_STATE);
  *graph = new_handle();
  return OK;
}
EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) {
  int before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return OK;
}
EXPORT int cudaStreamIsCapturing(void *stream, int *status) {
  *status = capture_id(stream) != 0;
  return OK;
}
EXPORT int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                       const void **dependencies, size_t *count) {
  unsigned long long capture = capture_id(stream);
  *status = capture != 0;
  if (id) *id = capture;
  if (graph) *graph = (void *)(uintptr_t)capture;
  if (dependencies) *dependencies = NULL;
  if (count) *count = 0;
  return OK;
}
EXPORT int cudaStreamGetCaptureInfo_v3(void *stream, int *status, unsigned long long *id, void **graph,
                                       const void **dependencies, const void **edges, size_t *count) {
  if (edges) *edges = NULL;
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
EXPORT int cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                     const void **dependencies, size_t *count) {
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
EXPORT int cuStreamGetCaptureInfo_v3(void *stream, int *status, unsigned long long *id, void **graph,
                                     const void **dependencies, const void **edges, size_t *count) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count);
}
EXPORT int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph,
                                    const void **dependencies, const void **edges, size_t *count) {
  if (card()->cuda == 12) return cudaStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);   // three arguments
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count);
}

EXPORT int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  if (!member_count) return OK;
  pthread_mutex_lock(&mutex);
  Member *of = member(stream), copy;
  if (of) copy = *of;
  join(event, of ? &copy : NULL);
  pthread_mutex_unlock(&mutex);
  return OK;
}
EXPORT int cudaEventRecord(void *event, void *stream) { return cudaEventRecordWithFlags(event, stream, 0); }
EXPORT int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
  if (!member_count) return OK;
  pthread_mutex_lock(&mutex);
  Member *of = member(event), copy;
  if (of) {
    copy = *of;
    join(stream, &copy);
  }
  pthread_mutex_unlock(&mutex);
  return OK;
}
EXPORT int cudaEventDestroy(void *event) {
  if (!member_count) return OK;
  pthread_mutex_lock(&mutex);
  join(event, NULL);
  pthread_mutex_unlock(&mutex);
  return OK;
}

EXPORT int cudaStreamSynchronize(void *stream) { return failed(capture_id(stream) ? CAPTURE_UNSUPPORTED : OK); }
EXPORT int cudaDeviceSynchronize(void) { return failed(thread_may_wait() ? OK : CAPTURE_UNSUPPORTED); }

// An executable graph takes memory of the driver's own, by its nodes; nobody knows how much.
static int instantiate(void **executable) {
  UNFAITHFUL("cudaGraphInstantiate");
  *executable = new_handle();
  return OK;
}
EXPORT int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags) {
  return instantiate(executable);
}
EXPORT int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  return instantiate(executable);
}
EXPORT int cudaGraphInstantiateWithParams(void **executable, void *graph, void *parameters) {
  return instantiate(executable);
}
EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *bytes) {   // of allocation nodes: none
  *bytes = 0;
  return OK;
}
EXPORT int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) {   // torch warns of an empty graph
  if (nodes && *count) nodes[0] = graph;
  *count = 1;
  return OK;
}

// Everything takes a millisecond: autotuners divide by the time, and then keep their first candidate.
static int elapsed(float *milliseconds) {
  *milliseconds = 1;
  return OK;
}
EXPORT int cudaEventElapsedTime(float *milliseconds, void *from, void *to) { return elapsed(milliseconds); }
EXPORT int cudaEventElapsedTime_v2(float *milliseconds, void *from, void *to) { return elapsed(milliseconds); }
EXPORT int cuEventElapsedTime(float *milliseconds, void *from, void *to) { return elapsed(milliseconds); }
EXPORT int cuEventElapsedTime_v2(float *milliseconds, void *from, void *to) { return elapsed(milliseconds); }

EXPORT int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
  if (!capture_id(stream)) function(data);   // captured, it waits for the graph's launch, which launches nothing
  return OK;
}
EXPORT int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags) {
  if (capture_id(stream)) return failed(CAPTURE_UNSUPPORTED);
  function(stream, OK, data);
  return OK;
}
