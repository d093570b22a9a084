/* What the C modules share: numbers as the wire and the log have them, where things are in a batch, and names. */

#ifndef HEADRACE_KERNEL_H
#define HEADRACE_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

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

#endif
