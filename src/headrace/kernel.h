/* What the C modules share: numbers as the wire and the log have them, where things are in a batch, names, and the slots of
   Python's own objects. */

#ifndef HEADRACE_KERNEL_H
#define HEADRACE_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

/* -- numbers, highest byte first ----------------------------------------------------------------------------------- */

static inline int64_t
read_int(const unsigned char *at, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++) {
        value = value << 8 | at[i];
    }
    return size == 8 ? (int64_t)value : size == 4 ? (int32_t)value : (int16_t)value;
}

/* Gives where the next goes. */
static inline unsigned char *
put_int(unsigned char *at, int64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--) {
        at[i] = (unsigned char)value;
        value >>= 8;
    }
    return at + size;
}

/* -- a batch -------------------------------------------------------------------------------------------------------- */

enum {
    BATCH_LENGTH_AT = 8,
    LEADER_EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    LAST_OFFSET_DELTA_AT = 23,
    MAX_TIMESTAMP_AT = 35,
    PRODUCER_ID_AT = 43,
    PRODUCER_EPOCH_AT = 51,
    BASE_SEQUENCE_AT = 53,
    RECORD_COUNT_AT = 57,
    HEADER_SIZE = 61
};
enum { LENGTH_OVERHEAD = 12, CRC_START = ATTRIBUTES_AT };
enum { CODEC_MASK = 7, CODEC_LAST = 4, TRANSACTIONAL = 0x10, CONTROL = 0x20 };

/* -- the records of a batch, as they are when nothing is compressed ------------------------------------------------- */

/* A zigzag number of at most `bytes_max` bytes; 0 when there is none. */
static inline int
take_varint(const unsigned char **at, const unsigned char *end, int bytes_max, int64_t *value)
{
    uint64_t raw = 0;
    for (int nth = 0; nth < bytes_max && *at < end; nth++) {
        unsigned char byte = *(*at)++;
        raw |= (uint64_t)(byte & 0x7F) << (7 * nth);
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}
enum { VARINT_MAX = 5, VARLONG_MAX = 10 };

/* Passes over a length and as many bytes; below zero means that there is nothing, which `is_null` then says. */
static inline int
pass_field(const unsigned char **at, const unsigned char *end, int *is_null)
{
    int64_t size;
    if (!take_varint(at, end, VARINT_MAX, &size) || size > end - *at) {
        return 0;
    }
    *is_null = size < 0;
    *at += size > 0 ? size : 0;
    return 1;
}

typedef struct {
    int64_t timestamp_delta, offset_delta;
    int is_keyless;
} Walked;

/* Passes over one record. 0 when it is broken: a number or a field that ends behind the record, bytes left over in it, or a
   header without a name. */
static inline int
walk_record(const unsigned char **at, const unsigned char *batch_end, Walked *walked)
{
    int64_t size, header_count;
    int is_null;
    if (!take_varint(at, batch_end, VARINT_MAX, &size) || size < 1 || size > batch_end - *at) {
        return 0;
    }
    const unsigned char *end = *at + size;
    ++*at; /* attributes, which mean nothing */
    if (!take_varint(at, end, VARLONG_MAX, &walked->timestamp_delta) ||
        !take_varint(at, end, VARINT_MAX, &walked->offset_delta) || !pass_field(at, end, &walked->is_keyless) || !pass_field(at, end, &is_null) ||
        !take_varint(at, end, VARINT_MAX, &header_count) || header_count < 0) {
        return 0;
    }
    for (; header_count > 0; header_count--) {
        if (!pass_field(at, end, &is_null) || is_null || !pass_field(at, end, &is_null)) {
            return 0;
        }
    }
    return *at == end;
}

/* -- names of attributes, interned: looking one up then compares addresses ------------------------------------------- */

typedef struct {
    PyObject **place;
    const char *text;
} Name;

static inline int
intern_names(const Name *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if ((*names[i].place = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return 0;
}

static inline PyObject *
import_name(const char *from, const char *name)
{
    PyObject *source = PyImport_ImportModule(from);
    PyObject *found = source != NULL ? PyObject_GetAttrString(source, name) : NULL;
    Py_XDECREF(source);
    return found;
}

/* -- slots: where a class with __slots__ keeps them; reading one is reading memory ------------------------------------ */

enum { LAYOUT_MAX = 12 };

typedef struct {
    const char *module, *name;
    const char *slots[LAYOUT_MAX]; /* NULL behind the last */
    PyTypeObject *type;
    Py_ssize_t offsets[LAYOUT_MAX];
} Layout;

static inline int
learn_layout(Layout *layout)
{
    PyObject *type = import_name(layout->module, layout->name);
    if (type == NULL) {
        return -1;
    }
    for (int i = 0; i < LAYOUT_MAX && layout->slots[i] != NULL; i++) {
        PyObject *descriptor = PyObject_GetAttrString(type, layout->slots[i]);
        if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
            PyErr_Format(PyExc_TypeError, "%s.%s is not a slot", layout->name, layout->slots[i]);
            Py_XDECREF(descriptor);
            Py_DECREF(type);
            return -1;
        }
        layout->offsets[i] = ((PyMemberDescrObject *)descriptor)->d_member->offset;
        Py_DECREF(descriptor);
    }
    layout->type = (PyTypeObject *)type;
    return 0;
}

/* At the first call and not before: the classes are in modules that import these. */
static inline int
learn_layouts(Layout *const *layouts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (layouts[i]->type == NULL && learn_layout(layouts[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Nothing but the very class: a subclass or a stand-in may do things of its own, and so is the twin's. */
static inline int
is_a(const Layout *layout, PyObject *object)
{
    return object != NULL && Py_TYPE(object) == layout->type;
}

/* That class or one made of it, whose slots are in the same places. */
static inline int
is_kind_of(const Layout *layout, PyObject *object)
{
    return object != NULL && PyObject_TypeCheck(object, layout->type);
}

static inline PyObject *
slot(const Layout *layout, PyObject *object, int which)
{
    return *(PyObject **)((char *)object + layout->offsets[which]); /* borrowed; NULL if it was never set */
}

static inline void
set_slot(const Layout *layout, PyObject *object, int which, PyObject *value)
{
    PyObject **place = (PyObject **)((char *)object + layout->offsets[which]);
    PyObject *old = *place;
    Py_INCREF(value);
    *place = value;
    Py_XDECREF(old);
}

/* `*is_good` turns 0, and there is no exception, where `value` (borrowed, or NULL) is not a number of 64 bits. */
static inline int64_t
number_of(PyObject *value, int *is_good)
{
    int is_beyond = 0;
    if (value == NULL || !PyLong_Check(value)) {
        *is_good = 0;
        return -1;
    }
    int64_t number = PyLong_AsLongLongAndOverflow(value, &is_beyond);
    if (is_beyond) {
        *is_good = 0;
    }
    return number;
}

static inline int64_t
slot_number(const Layout *layout, PyObject *object, int which, int *is_good)
{
    return number_of(slot(layout, object, which), is_good);
}

/* -- the log, for another module ---------------------------------------------------------------------------------------- */

enum { APPEND_DECLINED = -1, APPEND_FAILED = -2 };

typedef struct {
    /* Whether there is plainly room for a request of `size` bytes. If not, `LogStore.can_take` must be asked. */
    int (*has_room)(PyObject *partition, Py_ssize_t size);
    /* The base offset of `batch`; APPEND_DECLINED where the twin must do it, APPEND_FAILED with an exception. */
    int64_t (*append)(PyObject *partition, const unsigned char *batch, Py_ssize_t size, int64_t now_ms, PyObject *waiter);
} LogCalls;
#define LOG_CAPSULE "headrace.log._append.pointer"

#endif
