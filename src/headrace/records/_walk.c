/* Over the records of one batch, without making anything of them.

       walk(payload, count, first_delta, timestamp_delta, is_sparse, delta_end) -> the fields of `walk.Walk`
       ends(payload, count) -> where each record ends, 32 bits each; those in front of the first that is not whole

   Twins: `_walk` and `_ends` in walk.py. The interpreter is let go of meanwhile: a compressed batch of a kilobyte may hold two
   million records. */

#include "../kernel.h"

enum { KEYLESS_MAX = 64, RECORD_SIZE_MIN = 7 };

typedef struct {
    int64_t broken, found_at, found_time, newest_at, newest_time, keyless_count, keyless[KEYLESS_MAX];
} Found;

static void
walk_all(const unsigned char *at, const unsigned char *end, int64_t count, int64_t first_delta, int64_t timestamp_delta,
         int is_sparse, int64_t delta_end, Found *found)
{
    int64_t former_delta = -1;
    for (int64_t nth = 0; nth < count; nth++) {
        Walked walked;
        if (!walk_record(&at, end, &walked) || (!is_sparse && walked.offset_delta != nth) ||
            (delta_end >= 0 && (walked.offset_delta <= former_delta || walked.offset_delta >= delta_end))) {
            found->broken = nth;
            return;
        }
        former_delta = walked.offset_delta;
        if (walked.is_keyless && found->keyless_count++ < KEYLESS_MAX) {
            found->keyless[found->keyless_count - 1] = nth;
        }
        if (walked.offset_delta < first_delta) {
            continue;
        }
        if (found->found_at < 0 && walked.timestamp_delta >= timestamp_delta) {
            found->found_at = walked.offset_delta;
            found->found_time = walked.timestamp_delta;
        }
        if (found->newest_at < 0 || walked.timestamp_delta > found->newest_time) {
            found->newest_at = walked.offset_delta;
            found->newest_time = walked.timestamp_delta;
        }
    }
    if (at != end) {
        found->broken = count;
    }
}

static PyObject *
walk(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    Py_buffer buffer;
    if (argument_count != 6) {
        PyErr_SetString(PyExc_TypeError, "walk(payload, count, first_delta, timestamp_delta, is_sparse, delta_end)");
        return NULL;
    }
    long long numbers[3]; /* count, first_delta, timestamp_delta */
    for (int nth = 0; nth < 3; nth++) {
        numbers[nth] = PyLong_AsLongLong(arguments[nth + 1]);
        if (numbers[nth] == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    int is_sparse = arguments[4] == Py_True;
    long long delta_end = PyLong_AsLongLong(arguments[5]);
    if (delta_end == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Found found = {.broken = -1, .found_at = -1, .newest_at = -1};
    const unsigned char *start = buffer.buf;
    Py_BEGIN_ALLOW_THREADS;
    walk_all(start, start + buffer.len, numbers[0], numbers[1], numbers[2], is_sparse, delta_end, &found);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&buffer);
    int kept = found.keyless_count < KEYLESS_MAX ? (int)found.keyless_count : KEYLESS_MAX;
    PyObject *keyless = PyTuple_New(kept);
    for (int nth = 0; keyless != NULL && nth < kept; nth++) {
        PyObject *index = PyLong_FromLongLong(found.keyless[nth]);
        if (index == NULL) {
            Py_CLEAR(keyless);
        } else {
            PyTuple_SET_ITEM(keyless, nth, index);
        }
    }
    return keyless == NULL ? NULL
                           : Py_BuildValue("(LLLLLN)", (long long)found.broken, (long long)found.found_at,
                                           (long long)found.found_time, (long long)found.newest_at,
                                           (long long)found.newest_time, keyless);
}

static PyObject *
ends(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    Py_buffer buffer;
    if (argument_count != 2) {
        PyErr_SetString(PyExc_TypeError, "ends(payload, count)");
        return NULL;
    }
    long long count = PyLong_AsLongLong(arguments[1]);
    if ((count == -1 && PyErr_Occurred()) || PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    /* As many as can be there, whatever number a header has. */
    Py_ssize_t room = buffer.len < UINT32_MAX ? buffer.len / RECORD_SIZE_MIN : 0;
    room = count < 0 ? 0 : count < room ? (Py_ssize_t)count : room;
    PyObject *made = PyBytes_FromStringAndSize(NULL, room * (Py_ssize_t)sizeof(uint32_t));
    Py_ssize_t whole = 0;
    if (made != NULL) {
        const unsigned char *start = buffer.buf, *at = start;
        char *next = PyBytes_AS_STRING(made);
        Py_BEGIN_ALLOW_THREADS;
        for (Walked walked; whole < room && walk_record(&at, start + buffer.len, &walked); whole++) {
            uint32_t end = (uint32_t)(at - start);
            memcpy(next + whole * sizeof end, &end, sizeof end);
        }
        Py_END_ALLOW_THREADS;
        if (whole < room) {
            _PyBytes_Resize(&made, whole * (Py_ssize_t)sizeof(uint32_t));
        }
    }
    PyBuffer_Release(&buffer);
    return made;
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, "walk(payload, count, first_delta, timestamp_delta, is_sparse, delta_end)"},
    {"ends", (PyCFunction)(void (*)(void))ends, METH_FASTCALL, "ends(payload, count)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_walk", "Over the records of a batch.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__walk(void)
{
    PyObject *self = PyModule_Create(&module);
    if (self != NULL && PyModule_AddIntMacro(self, KEYLESS_MAX) < 0) {
        Py_CLEAR(self);
    }
    return self;
}
