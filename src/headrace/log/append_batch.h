/* Which batches `_append.c` takes: what can be seen in the batch alone, whatever partition it is for. */

#ifndef HEADRACE_APPEND_BATCH_H
#define HEADRACE_APPEND_BATCH_H

#include "../kernel.h"

enum { MAGIC = 2, RECORD_SIZE_MIN = 7 };
enum { PLAIN_AHEAD_MS = 3600000 };

static PyObject *crc32c; /* set when the module is imported */

typedef struct {
    int32_t count, base_sequence;
    int is_compressed;
    int16_t epoch;
    int64_t producer_id, max_timestamp;
} Batch;

/* Whether the batch is one that `check_batch` takes, the CRC aside, and the log has nothing special to do for. */
static int
is_common_batch(const unsigned char *data, Py_ssize_t size, Batch *batch)
{
    if (size < HEADER_SIZE || data[MAGIC_AT] != MAGIC || read_int(data + BATCH_LENGTH_AT, 4) + LENGTH_OVERHEAD != size) {
        return 0;
    }
    int attributes = (int)read_int(data + ATTRIBUTES_AT, 2) & 0xFFFF;
    int codec = attributes & CODEC_MASK;
    int64_t count = read_int(data + RECORD_COUNT_AT, 4);
    if (attributes & (TRANSACTIONAL | CONTROL) || codec > CODEC_LAST) {
        return 0;
    }
    if (count < 1 || read_int(data + LAST_OFFSET_DELTA_AT, 4) != count - 1 ||
        (codec ? 1 : count * RECORD_SIZE_MIN) > size - HEADER_SIZE) {
        return 0;
    }
    batch->count = (int32_t)count;
    batch->is_compressed = codec != 0;
    batch->max_timestamp = read_int(data + MAX_TIMESTAMP_AT, 8);
    batch->producer_id = read_int(data + PRODUCER_ID_AT, 8);
    batch->epoch = (int16_t)read_int(data + PRODUCER_EPOCH_AT, 2);
    batch->base_sequence = (int32_t)read_int(data + BASE_SEQUENCE_AT, 4);
    return batch->producer_id == -1 || (batch->producer_id >= 0 && batch->epoch >= 0 && batch->base_sequence >= 0);
}

/* The CRC has one implementation in the product, and it is not this file's. */
static int
has_valid_crc(const unsigned char *data, Py_ssize_t size)
{
    int is_good = 1;
    PyObject *covered = PyMemoryView_FromMemory((char *)data + CRC_START, size - CRC_START, PyBUF_READ);
    PyObject *found = covered != NULL ? PyObject_CallOneArg(crc32c, covered) : NULL;
    Py_XDECREF(covered);
    int64_t crc = number_of(found, &is_good);
    Py_XDECREF(found);
    PyErr_Clear();
    return is_good && crc == (int64_t)(uint32_t)read_int(data + 17, 4);
}

/* `check_records`, where that needs no decompressing; what is compressed is taken as it comes, as the twin takes it. */
static int
has_whole_records(const unsigned char *data, Py_ssize_t size, const Batch *batch)
{
    const unsigned char *at = data + HEADER_SIZE, *end = data + size;
    for (int64_t nth = 0; !batch->is_compressed && nth < batch->count; nth++) {
        Walked walked;
        if (!walk_record(&at, end, &walked) || walked.offset_delta != nth) {
            return 0;
        }
    }
    return batch->is_compressed || at == end;
}

/* Whether the client's clock is no further ahead than every plain topic allows; what cannot be subtracted is not common. */
static int
is_in_time(const Batch *batch, int64_t now_ms)
{
    int64_t ahead_ms;
    return !__builtin_sub_overflow(batch->max_timestamp, now_ms, &ahead_ms) && ahead_ms <= PLAIN_AHEAD_MS;
}

#endif
