/* Over the records of one batch, without making anything of them.

       walk(payload, count, first_delta, timestamp_delta, is_sparse) -> the fields of `walk.Walk`

   Twin: `_walk` in walk.py. The interpreter is let go of meanwhile: a compressed batch of a kilobyte may hold two million
   records. */

#include "../kernel.h"

enum { KEYLESS_MAX = 64 };

typedef struct {
    int64_t broken, found_at, found_time, newest_at, newest_time, keyless_count, keyless[KEYLESS_MAX];
} Found;

static void
walk_all(const unsigned char *at, const unsigned char *end, int64_t count, int64_t first_delta, int64_t timestamp_delta,
         int is_sparse, Found *found)
{
    for (int64_t nth = 0; nth < count; nth++) {
        Walked walked;
        if (!walk_record(&at, end, &walked) || (!is_sparse && walked.offset_delta != nth)) {
            found->broken = nth;
            return;
        }
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
    if (argument_count != 5) {
        PyErr_SetString(PyExc_TypeError, "walk(payload, count, first_delta, timestamp_delta, is_sparse)");
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
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Found found = {.broken = -1, .found_at = -1, .newest_at = -1};
    const unsigned char *start = buffer.buf;
    Py_BEGIN_ALLOW_THREADS;
    walk_all(start, start + buffer.len, numbers[0], numbers[1], numbers[2], is_sparse, &found);
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

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, "walk(payload, count, first_delta, timestamp_delta, is_sparse)"},
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
