/* Pieces of memory to a file that takes whole blocks only, through one stretch of aligned memory.

       write_through(descriptor, pieces, staging, block_size) -> size of the pieces

   Twin: `_write_pieces` in local.py.

   One call for a whole object: a thread that asks for the interpreter after every piece and every write, a hundred times for
   64 MiB, has to take it from the event loop each time. */

#include "../kernel.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Past the caches: into memory that a device has read before, plain stores have taken five times as long at times, most likely
   because its side of a virtual machine had left the lines in a cache far away. Nobody reads the copy but the device. */
#ifdef __SSE2__
enum { LINE_SIZE = 64, VECTORS = LINE_SIZE / sizeof(__m128i) };

static void
copy_past_caches(char *to, const char *from, size_t size)
{
    size_t unaligned = -(uintptr_t)to % LINE_SIZE;
    size_t head = unaligned < size ? unaligned : size;
    memcpy(to, from, head);
    for (to += head, from += head, size -= head; size >= LINE_SIZE; to += LINE_SIZE, from += LINE_SIZE, size -= LINE_SIZE) {
        for (size_t i = 0; i < VECTORS; i++) {
            _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
        }
    }
    memcpy(to, from, size);
    _mm_sfence();
}
#else
static void
copy_past_caches(char *to, const char *from, size_t size)
{
    memcpy(to, from, size);
}
#endif

/* Gives 0, or what errno was. */
static int
write_all(int descriptor, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t written = write(descriptor, data, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return written < 0 ? errno : EIO;
        }
        data += written;
        size -= (size_t)written;
    }
    return 0;
}

/* The same. The last block is written whole: what is behind the last piece is for the caller to cut off. */
static int
write_pieces(int descriptor, const Py_buffer *pieces, Py_ssize_t count, const Py_buffer *staging, size_t block_size)
{
    char *memory = staging->buf;
    size_t room = (size_t)staging->len, filled = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *from = pieces[i].buf;
        size_t left = (size_t)pieces[i].len;
        while (left > 0) {
            size_t part = left < room - filled ? left : room - filled;
            copy_past_caches(memory + filled, from, part);
            filled += part;
            from += part;
            left -= part;
            if (filled == room) {
                int error = write_all(descriptor, memory, room);
                if (error != 0) {
                    return error;
                }
                filled = 0;
            }
        }
    }
    return write_all(descriptor, memory, (filled + block_size - 1) / block_size * block_size);
}

static void
release(Py_buffer *buffers, Py_ssize_t count)
{
    while (count > 0) {
        PyBuffer_Release(&buffers[--count]);
    }
    PyMem_Free(buffers);
}

/* NULL with an exception set, or `sequence`'s items as memory, to be released. */
static Py_buffer *
buffers_of(PyObject *sequence)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    Py_buffer *buffers = PyMem_Calloc(count > 0 ? (size_t)count : 1, sizeof(Py_buffer));
    if (buffers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(sequence, i), &buffers[i], PyBUF_SIMPLE) < 0) {
            release(buffers, i);
            return NULL;
        }
    }
    return buffers;
}

static PyObject *
write_through(PyObject *self, PyObject *args)
{
    int descriptor;
    PyObject *given, *sequence;
    Py_buffer staging;
    Py_ssize_t block_size, size = 0;
    if (!PyArg_ParseTuple(args, "iOw*n", &descriptor, &given, &staging, &block_size)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (block_size < 1 || staging.len < 1 || staging.len % block_size) {
        PyErr_SetString(PyExc_ValueError, "staging memory has to be whole blocks");
        PyBuffer_Release(&staging);
        return NULL;
    }
    /* A tuple: nobody else can change it while the interpreter is not held. */
    if ((sequence = PySequence_Tuple(given)) != NULL) {
        Py_ssize_t count = PyTuple_GET_SIZE(sequence);
        Py_buffer *pieces = buffers_of(sequence);
        if (pieces != NULL) {
            int error;
            for (Py_ssize_t i = 0; i < count; i++) {
                size += pieces[i].len;
            }
            Py_BEGIN_ALLOW_THREADS
            error = write_pieces(descriptor, pieces, count, &staging, (size_t)block_size);
            Py_END_ALLOW_THREADS
            release(pieces, count);
            if (error == 0) {
                result = PyLong_FromSsize_t(size);
            }
            else {
                errno = error;
                PyErr_SetFromErrno(PyExc_OSError);
            }
        }
        Py_DECREF(sequence);
    }
    PyBuffer_Release(&staging);
    return result;
}

static PyMethodDef methods[] = {
    {"write_through", write_through, METH_VARARGS,
     "write_through(descriptor, pieces, staging, block_size): write `pieces` in whole blocks; gives their size."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_through", "Whole blocks to a file.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__through(void)
{
    return PyModule_Create(&module);
}
