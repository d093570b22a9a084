/* Many batches at once: whole ones, back to back.

       summary_of(batches, start, size_min) -> the fields of `stretch.Summary`
       crc_of_batches(batches, crc) -> crc

   Twins: `_summary_of` in stretch.py, and `crc32c` over all of the bytes.

   A batch's own CRC covers all of it but its first 21 bytes. Those are read here, the rest is not: CRCs of two pieces give
   that of both by one multiplication, in the field in which a CRC is the rest of a division. */

#include "../kernel.h"

static const uint32_t POLYNOMIAL = 0x82f63b78; /* Castagnoli's, lowest power in the highest bit. */
static const uint32_t ONE = (uint32_t)1 << 31;

static uint32_t of_byte[256];
static uint32_t powers[4][256]; /* What this many bytes behind it do to a CRC: 0-255, 0-255 times 256, and so on. */

static uint32_t
times_x(uint32_t value)
{
    return (value >> 1) ^ (POLYNOMIAL & -(value & 1));
}

static uint32_t
multiply(uint32_t left, uint32_t right)
{
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        product ^= right & -(left >> bit & 1);
        right = times_x(right);
    }
    return product;
}

static void
fill_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        of_byte[byte] = byte;
        for (int bit = 0; bit < 8; bit++) {
            of_byte[byte] = times_x(of_byte[byte]);
        }
    }
    uint32_t step = ONE >> 8; /* One byte is eight times x. */
    for (int nth = 0; nth < 4; nth++) {
        powers[nth][0] = ONE;
        for (int count = 1; count < 256; count++) {
            powers[nth][count] = multiply(powers[nth][count - 1], step);
        }
        step = multiply(powers[nth][255], step);
    }
}

static uint32_t
power_of(uint32_t bytes)
{
    uint32_t power = powers[0][bytes & 0xff];
    for (int nth = 1; bytes >>= 8; nth++) {
        power = multiply(power, powers[nth][bytes & 0xff]);
    }
    return power;
}

static uint32_t
of_bytes(uint32_t crc, const unsigned char *at, int count)
{
    crc = ~crc;
    for (int nth = 0; nth < count; nth++) {
        crc = (crc >> 8) ^ of_byte[(crc ^ at[nth]) & 0xff];
    }
    return ~crc;
}

/* The size of the batch at `at`, or 0 when it is not whole. */
static int64_t
whole_size(const unsigned char *at, const unsigned char *end)
{
    if (end - at < HEADER_SIZE) {
        return 0;
    }
    int64_t size = read_int(at + BATCH_LENGTH_AT, 4) + LENGTH_OVERHEAD;
    return size >= HEADER_SIZE && size <= end - at ? size : 0;
}

static PyObject *
summary_of(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    Py_buffer buffer;
    Py_ssize_t start = argument_count == 3 ? PyLong_AsSsize_t(arguments[1]) : 0;
    Py_ssize_t size_min = argument_count == 3 && !PyErr_Occurred() ? PyLong_AsSsize_t(arguments[2]) : 0;
    if (argument_count != 3 || PyErr_Occurred()) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "summary_of(batches, start, size_min)");
        }
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int is_whole = start >= 0 && start <= buffer.len, is_rising = 1;
    const unsigned char *first = buffer.buf, *end = first + buffer.len, *at = is_whole ? first + start : end;
    Py_ssize_t wanted = size_min < 0 ? 0 : size_min;
    Py_ssize_t position = start, enough = is_whole && wanted < end - at ? start + wanted : buffer.len;
    int64_t base = -1, last = -1, epoch = -1, newest = -1, records = 0, count = 0;
    unsigned codecs = 0, attributes = 0;
    while (is_whole && (!count || position < enough)) {
        int64_t size = whole_size(at, end), offset;
        if (!(is_whole = size > 0)) {
            break;
        }
        offset = read_int(at, 8);
        if (!(is_rising = !count || offset > last)) {
            break;
        }
        if (!count++) {
            base = offset;
        }
        int64_t timestamp = read_int(at + MAX_TIMESTAMP_AT, 8);
        if (__builtin_add_overflow(offset, read_int(at + LAST_OFFSET_DELTA_AT, 4), &last)) {
            is_rising = 0; /* Past the last offset there can be. */
            break;
        }
        epoch = read_int(at + LEADER_EPOCH_AT, 4);
        newest = timestamp > newest ? timestamp : newest;
        records += read_int(at + RECORD_COUNT_AT, 4);
        codecs |= 1u << (at[ATTRIBUTES_AT + 1] & CODEC_MASK);
        attributes |= (unsigned)at[ATTRIBUTES_AT] << 8 | at[ATTRIBUTES_AT + 1];
        at += size;
        position += size;
    }
    PyBuffer_Release(&buffer);
    if (!is_whole || !is_rising) {
        PyErr_Format(PyExc_ValueError, is_whole ? "the batch at %zd does not rise above the one before" : "no whole batch at %zd",
                     position);
        return NULL;
    }
    return Py_BuildValue("(nLLLLLLII)", position, count, base, last, epoch, newest, records, codecs, attributes);
}

static PyObject *
crc_of_batches(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer buffer;
    unsigned long given = count == 2 ? PyLong_AsUnsignedLong(arguments[1]) : 0;
    if (count != 2 || PyErr_Occurred()) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "crc_of_batches(batches, crc)");
        }
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const unsigned char *at = buffer.buf, *end = at + buffer.len;
    uint32_t crc = (uint32_t)given, power = ONE;
    int64_t size_before = 0; /* Batches of one producer are often of one size. */
    int is_whole = 1;
    while (at < end) {
        int64_t size = whole_size(at, end);
        if (!(is_whole = size > 0)) {
            break;
        }
        if (size != size_before) {
            power = power_of((uint32_t)(size - CRC_START));
            size_before = size;
        }
        crc = multiply(of_bytes(crc, at, CRC_START), power) ^ (uint32_t)read_int(at + CRC_AT, 4);
        at += size;
    }
    PyBuffer_Release(&buffer);
    if (!is_whole) {
        PyErr_SetString(PyExc_ValueError, "these are not whole batches");
        return NULL;
    }
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef methods[] = {
    {"summary_of", (PyCFunction)(void (*)(void))summary_of, METH_FASTCALL,
     "summary_of(batches, start, size_min): what the batches from `start` on have, until they make `size_min` bytes."},
    {"crc_of_batches", (PyCFunction)(void (*)(void))crc_of_batches, METH_FASTCALL,
     "crc_of_batches(batches, crc): the CRC-32C of all the bytes, behind what gave `crc`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_stretch", "Many batches at once.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__stretch(void)
{
    fill_tables();
    return PyModule_Create(&module);
}
