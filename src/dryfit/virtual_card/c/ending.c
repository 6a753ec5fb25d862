// The end of a Python process. When the interpreter shuts down, Python (before 3.14) ends every other thread that asks
// for its lock with pthread_exit, which unwinds the thread's stack; where that passes a C++ destructor, the process
// dies of "terminate called without an active exception". PyTorch's autograd threads do ask: they drop the last graph
// of a backward pass a moment after the main thread has gone on, and on this card, where nothing takes time, it may
// have gone on to its end. So such a thread stops where it is, as Python 3.14 has it, and the process ends without it.
#include "card.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

static bool python_ends(void) {
  int (*ends)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsFinalizing");   // from 3.13 on
  if (!ends) ends = (int (*)(void))dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
  return ends && ends();
}

static void *python_base(void) {   // where the program or library that Python is lies in memory
  Dl_info python;
  void *known = dlsym(RTLD_DEFAULT, "PyThread_exit_thread");
  return known && dladdr(known, &python) ? python.dli_fbase : NULL;
}

EXPORT _Noreturn void pthread_exit(void *result) {
  Dl_info caller;   // a thread that another library ends may be waited for
  bool by_python = dladdr(__builtin_return_address(0), &caller) && caller.dli_fbase == python_base();
  if (by_python && python_ends())
    for (;;) pause();
  void (*real)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "pthread_exit");
  real(result);
  __builtin_unreachable();
}
