/* The WAL's flusher: the native half of headrace.log.wal.flusher.
 *
 * One thread that writes one group at a time and never takes the interpreter: a flush costs the event loop the call that
 * hands it over and the call that takes its outcome, whatever else Python is doing. The rules it keeps:
 *
 * - `write` takes a view of the image while it holds the GIL and returns; `finish` gives it up. In between the thread
 *   reads the memory behind it and touches no Python object.
 * - A write has ended when the disk has every byte or has said no. Short writes go on where they stopped; after an
 *   error nothing is tried again.
 * - It knows nothing of LSNs, headers or zeroing: bytes, a place and a file descriptor. `ThreadFlusher` in flusher.py is
 *   its twin and must leave the same bytes on disk.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK_SIZE 4096

enum { IDLE, UNDER_WAY, ENDED };

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    int is_running;
    int fd;        /* of the file, the caller's */
    int is_direct; /* O_DIRECT: whole blocks from aligned memory, and nothing else */
    int ended_fd;  /* readable when a write has ended */
    sem_t wanted;  /* posted for each write, and once more for the end of the thread */
    atomic_int state;

    /* The write under way. The loop fills these before it posts, the thread owns them until the state is ENDED. */
    const uint8_t *image;
    size_t size;
    off_t place;
    int error;

    Py_buffer view; /* what `image` points into; only the loop looks here */
    int has_view;
} Flusher;

/* -- the thread -------------------------------------------------------------------------------------------------- */

/* Every part of it is synced by its own call. What a short write leaves goes on at a block where O_DIRECT takes no other
   place. */
static int write_image(const Flusher *self) {
    size_t done = 0;
    while (done < self->size) {
        struct iovec rest = {(void *)(self->image + done), self->size - done};
        ssize_t written = pwritev2(self->fd, &rest, 1, self->place + (off_t)done, RWF_DSYNC);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        if (written < (self->is_direct ? BLOCK_SIZE : 1)) return EIO;
        done += (size_t)written & (self->is_direct ? ~(size_t)(BLOCK_SIZE - 1) : ~(size_t)0);
    }
    return 0;
}

static void *flush_forever(void *argument) {
    Flusher *self = argument;
    for (;;) {
        while (sem_wait(&self->wanted) < 0) {
        }
        if (atomic_load_explicit(&self->state, memory_order_acquire) != UNDER_WAY) return NULL;
        self->error = write_image(self);
        atomic_store_explicit(&self->state, ENDED, memory_order_release);
        eventfd_write(self->ended_fd, 1);
    }
}

/* Signals are for the interpreter's own threads. */
static int start_thread(Flusher *self) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&self->thread, NULL, flush_forever, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) {
        self->is_running = 1;
        pthread_setname_np(self->thread, "wal-flusher");
    }
    return error;
}

/* -- the loop ---------------------------------------------------------------------------------------------------- */

static void release_view(Flusher *self) {
    if (self->has_view) PyBuffer_Release(&self->view);
    self->has_view = 0;
}

static PyObject *flusher_write(Flusher *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "write takes an image and a place");
        return NULL;
    }
    if (!self->is_running || atomic_load_explicit(&self->state, memory_order_acquire) != IDLE) {
        PyErr_SetString(PyExc_RuntimeError, self->is_running ? "a write is under way" : "the flusher is closed");
        return NULL;
    }
    self->place = (off_t)PyLong_AsLongLong(arguments[1]);
    if (PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(arguments[0], &self->view, PyBUF_SIMPLE) < 0) return NULL;
    self->has_view = 1;
    self->image = self->view.buf;
    self->size = (size_t)self->view.len;
    atomic_store_explicit(&self->state, UNDER_WAY, memory_order_release);
    sem_post(&self->wanted);
    Py_RETURN_NONE;
}

static PyObject *flusher_finish(Flusher *self, PyObject *Py_UNUSED(nothing)) {
    if (atomic_load_explicit(&self->state, memory_order_acquire) != ENDED) {
        PyErr_SetString(PyExc_RuntimeError, "no write has ended");
        return NULL;
    }
    eventfd_t ended;
    eventfd_read(self->ended_fd, &ended);
    release_view(self);
    atomic_store_explicit(&self->state, IDLE, memory_order_relaxed);
    return PyLong_FromLong(self->error);
}

static PyObject *flusher_fileno(Flusher *self, PyObject *Py_UNUSED(nothing)) {
    return PyLong_FromLong(self->ended_fd);
}

static void join_thread(Flusher *self) {
    sem_post(&self->wanted);
    pthread_join(self->thread, NULL);
    self->is_running = 0;
}

static PyObject *flusher_close(Flusher *self, PyObject *Py_UNUSED(nothing)) {
    if (self->is_running) {
        Py_BEGIN_ALLOW_THREADS
        join_thread(self);
        Py_END_ALLOW_THREADS
        release_view(self);
    }
    Py_RETURN_NONE;
}

static void flusher_dealloc(Flusher *self) {
    if (self->is_running) join_thread(self);
    release_view(self);
    if (self->ended_fd >= 0) close(self->ended_fd);
    sem_destroy(&self->wanted);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *flusher_new(PyTypeObject *type, PyObject *arguments, PyObject *named) {
    static char *names[] = {"fd", "is_direct", NULL};
    int fd, is_direct;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "i$p", names, &fd, &is_direct)) return NULL;
    Flusher *self = (Flusher *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->fd = fd;
    self->is_direct = is_direct;
    sem_init(&self->wanted, 0, 0);
    self->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->ended_fd >= 0) errno = start_thread(self);
    if (!self->is_running) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* -- the module -------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"write", (PyCFunction)(void (*)(void))flusher_write, METH_FASTCALL, "Hand over an image for a place in the file."},
    {"finish", (PyCFunction)flusher_finish, METH_NOARGS, "Take the outcome of the write that ended: 0, or an errno."},
    {"fileno", (PyCFunction)flusher_fileno, METH_NOARGS, "A descriptor that is readable when a write has ended."},
    {"close", (PyCFunction)flusher_close, METH_NOARGS, "Wait for the write under way, if any, and end the thread."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject flusher_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headrace.log.wal._flusher.Flusher",
    .tp_doc = "A thread that makes bytes durable and never takes the interpreter.",
    .tp_basicsize = sizeof(Flusher),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = flusher_new,
    .tp_dealloc = (destructor)flusher_dealloc,
    .tp_methods = methods,
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_flusher", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__flusher(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddType(module, &flusher_type) < 0) Py_CLEAR(module);
    return module;
}
