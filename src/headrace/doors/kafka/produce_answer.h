/* Writing the answer to a produce request: rows of partitions whose append has gone the common way, in memory that grows. */

#ifndef HEADRACE_PRODUCE_ANSWER_H
#define HEADRACE_PRODUCE_ANSWER_H

#include "produce_request.h"

#include <string.h>

static unsigned char *
put_uvarint(unsigned char *at, uint32_t value)
{
    while (value >= 0x80) {
        *at++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (unsigned char)value;
    return at;
}

typedef struct {
    unsigned char *start, *at;
    Py_ssize_t capacity;
} Output;

static int
make_room(Output *output, Py_ssize_t size)
{
    Py_ssize_t used = output->at - output->start;
    if (used + size <= output->capacity) {
        return 0;
    }
    Py_ssize_t capacity = (used + size) * 2;
    unsigned char *grown = PyMem_Realloc(output->start, capacity);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *output = (Output){grown, grown + used, capacity};
    return 0;
}

static unsigned char *
put_plain_row(unsigned char *at, int version, int32_t index, int64_t base, int64_t log_start)
{
    at = put_int(at, index, 4);
    at = put_int(at, 0, 2); /* error code */
    at = put_int(at, base, 8);
    at = put_int(at, -1, 8); /* append time */
    at = put_int(at, log_start, 8);
    if (version >= FLEXIBLE_FROM) {
        *at++ = 1; /* no record errors */
        *at++ = 0; /* no message */
        *at++ = 0; /* no tags */
    } else if (version >= 8) {
        at = put_int(at, 0, 4);
        at = put_int(at, -1, 2);
    }
    return at;
}

static int
put_topic(Output *output, const Request *request, const Row *row)
{
    if (make_room(output, row->name_size + 16) < 0) {
        return -1;
    }
    int is_flexible = request->version >= FLEXIBLE_FROM;
    if (request->version < TOPIC_ID_FROM) {
        output->at = is_flexible ? put_uvarint(output->at, row->name_size + 1) : put_int(output->at, row->name_size, 2);
    }
    memcpy(output->at, row->name, row->name_size);
    output->at += row->name_size;
    output->at =
        is_flexible ? put_uvarint(output->at, row->rows_of_topic + 1) : put_int(output->at, row->rows_of_topic, 4);
    return 0;
}

#endif
