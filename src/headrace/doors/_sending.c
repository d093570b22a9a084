/* Sends what connections have ready to answer, without a trip through the transport for each.

       send_ready(connections, slots_max) -> None

   For a connection in plain circumstances the answers whose turn has come leave its slots and go to its socket in one call
   of the kernel. Large pieces of memory that may be lent (`aligned.LendablePages`) and are read by many are not even copied:
   the socket refers to the pages themselves. What the socket does not take is the transport's, which waits until it does.
   Everything else is for `FramedConnection.flush`, the twin: an answer with ranges of files in it, a connection that closes,
   whose transport still has bytes unsent, that is as full as it may be, or whose socket is not the transport's own
   (`_file_number` below zero). */

#define _GNU_SOURCE
#include "../kernel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef __linux__
static int can_lend = 1;
#else
static const int can_lend = 0;
#endif

enum { PIECES_MAX = 64 };
enum { LARGE = 128 * 1024 }; /* From here on a call takes the kernel so long that other threads should have the interpreter. */
enum { LENT_MIN = 128 * 1024 }; /* Below it a copy costs no more, and a few bytes would keep a whole large page. */
enum { COPIES_FIRST = 4 };
enum { PIPE_SIZE = 1024 * 1024 };

enum { C_SLOTS, C_TRANSPORT, C_FILE_NUMBER, C_IS_CLOSING, C_IS_ANSWERING };
static Layout connection_layout = {"headrace.doors.connection", "FramedConnection",
                                   {"_slots", "_transport", "_file_number", "_is_closing", "_is_answering"}, NULL, {0}};

static PyObject *str_flush, *str_chunks, *str_popleft, *str_is_transport_closing, *str_unsent, *str_writelines, *str_is_lent,
    *str_copied_bytes;

typedef struct {
    Py_buffer views[PIECES_MAX];
    struct iovec pieces[PIECES_MAX];
    char is_lent[PIECES_MAX];
    int lent_count;
    int count;
    size_t size;
} Answers;

static void
release(Answers *answers)
{
    for (int i = 0; i < answers->count; i++) {
        PyBuffer_Release(&answers->views[i]);
    }
    answers->count = answers->lent_count = 0;
    answers->size = 0;
}

/* Whether the socket is to refer to this memory instead of copying it; its owner is told. -1 with an exception.

   Lending has its price: fresh pages in place of these when they would have been filled again. That is about what copying
   them COPIES_FIRST times takes, so that much is copied first, and only what many read is ever lent. */
static int
borrow(PyObject *chunk, Py_ssize_t size)
{
    PyObject *owner = can_lend && size >= LENT_MIN && PyMemoryView_Check(chunk) ? PyMemoryView_GET_BASE(chunk) : NULL;
    if (owner == NULL || !PyObject_HasAttr(owner, str_copied_bytes)) {
        return 0;
    }
    PyObject *copied = PyObject_GetAttr(owner, str_copied_bytes);
    Py_ssize_t bytes = copied != NULL ? PyLong_AsSsize_t(copied) : -1, whole = PyObject_Size(owner);
    Py_XDECREF(copied);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (bytes >= whole * COPIES_FIRST) {
        return PyObject_SetAttr(owner, str_is_lent, Py_True) < 0 ? -1 : 1;
    }
    PyObject *sum = PyLong_FromSsize_t(bytes + size);
    int outcome = sum != NULL ? PyObject_SetAttr(owner, str_copied_bytes, sum) : -1;
    Py_XDECREF(sum);
    return outcome;
}

/* Adds all of `chunks`, a tuple or a list. 1, 0 where there is no room or they are not all memory, -1 with an exception. */
static int
add(Answers *answers, PyObject *chunks)
{
    PyObject *sequence = PySequence_Fast(chunks, "the chunks of an answer are a sequence");
    if (sequence == NULL) {
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    int is_added = answers->count + count <= PIECES_MAX;
    for (Py_ssize_t i = 0; is_added == 1 && i < count; i++) {
        is_added = PyObject_CheckBuffer(PySequence_Fast_GET_ITEM(sequence, i)); /* A range of a file is not. */
    }
    for (Py_ssize_t i = 0; is_added == 1 && i < count; i++) {
        PyObject *chunk = PySequence_Fast_GET_ITEM(sequence, i);
        Py_buffer *view = &answers->views[answers->count];
        if (PyObject_GetBuffer(chunk, view, PyBUF_SIMPLE) < 0) {
            is_added = -1;
            break;
        }
        int is_lent = borrow(chunk, view->len);
        answers->pieces[answers->count] = (struct iovec){view->buf, (size_t)view->len};
        answers->is_lent[answers->count++] = is_lent == 1;
        answers->lent_count += is_lent == 1;
        answers->size += (size_t)view->len;
        if (is_lent < 0) {
            is_added = -1;
        }
    }
    Py_DECREF(sequence);
    return is_added;
}

/* Takes answers whose turn has come out of `slots`. 1 when it has all of them, 0 where some are left, -1 with an exception. */
static int
gather(PyObject *slots, Answers *answers)
{
    while (PyObject_Size(slots) > 0) {
        PyObject *slot = PySequence_GetItem(slots, 0);
        PyObject *chunks = slot != NULL ? PyObject_GetAttr(slot, str_chunks) : NULL;
        Py_XDECREF(slot);
        int is_added = chunks == NULL ? -1 : chunks == Py_None ? 2 : add(answers, chunks);
        Py_XDECREF(chunks);
        if (is_added != 1) {
            return is_added == 2 ? 1 : is_added;
        }
        PyObject *taken = PyObject_CallMethodNoArgs(slots, str_popleft);
        Py_XDECREF(taken);
        if (taken == NULL) {
            return -1;
        }
    }
    return PyErr_Occurred() ? -1 : 1;
}

static size_t
copy_out(int fd, struct iovec *pieces, int count, int is_more)
{
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
    ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL | (is_more ? MSG_MORE : 0));
    return sent > 0 ? (size_t)sent : 0; /* The transport will meet the same error, and knows what to do about it. */
}

#ifdef __linux__
/* Memory reaches a socket uncopied through a pipe. There is one; it is empty whenever nobody uses it. */
static int pipe_ends[2] = {-1, -1};
static int is_pipe_taken = 0; /* Read and written only by who holds the interpreter. */

static int
open_pipe(void)
{
    if (pipe_ends[0] >= 0) {
        return 1;
    }
    if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        pipe_ends[0] = pipe_ends[1] = -1;
        return 0;
    }
    fcntl(pipe_ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* Without it more calls are needed, nothing else. */
    return 1;
}

static void
throw_pipe_away(void)
{
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    pipe_ends[0] = pipe_ends[1] = -1;
}

static size_t
lend_out(int fd, struct iovec piece, int is_more)
{
    size_t sent = 0;
    while (sent < piece.iov_len && open_pipe()) {
        struct iovec rest = {(char *)piece.iov_base + sent, piece.iov_len - sent};
        ssize_t held = vmsplice(pipe_ends[1], &rest, 1, SPLICE_F_NONBLOCK);
        if (held <= 0) {
            can_lend = 0; /* An empty pipe has room: this system does not let us. */
            break;
        }
        unsigned int flags = SPLICE_F_NONBLOCK | (is_more || (size_t)held < rest.iov_len ? SPLICE_F_MORE : 0);
        while (held > 0) {
            ssize_t moved = splice(pipe_ends[0], NULL, fd, NULL, (size_t)held, flags);
            if (moved <= 0) {
                throw_pipe_away(); /* What is in it will be sent by the transport. */
                return sent;
            }
            held -= moved;
            sent += (size_t)moved;
        }
    }
    return sent;
}

static size_t
send_lending(int fd, Answers *answers)
{
    size_t sent = 0;
    for (int i = 0, end; i < answers->count; i = end) {
        size_t size = 0, part;
        if (answers->is_lent[i]) {
            end = i + 1;
            size = answers->pieces[i].iov_len;
            part = lend_out(fd, answers->pieces[i], end < answers->count);
        } else {
            for (end = i; end < answers->count && !answers->is_lent[end]; end++) {
                size += answers->pieces[end].iov_len;
            }
            part = copy_out(fd, answers->pieces + i, end - i, end < answers->count);
        }
        sent += part;
        if (part < size) {
            break;
        }
    }
    return sent;
}
#endif

static size_t
send_now(int fd, Answers *answers)
{
    size_t sent;
    if (answers->size < LARGE) {
        return copy_out(fd, answers->pieces, answers->count, 0);
    }
#ifdef __linux__
    if (answers->lent_count && !is_pipe_taken) {
        is_pipe_taken = 1;
        Py_BEGIN_ALLOW_THREADS
        sent = send_lending(fd, answers);
        Py_END_ALLOW_THREADS
        is_pipe_taken = 0;
        return sent;
    }
#endif
    Py_BEGIN_ALLOW_THREADS
    sent = copy_out(fd, answers->pieces, answers->count, 0);
    Py_END_ALLOW_THREADS
    return sent;
}

/* What begins at `sent` is the transport's now. */
static int
leave_to(PyObject *transport, const Answers *answers, size_t sent)
{
    PyObject *rest = PyList_New(0);
    for (int i = 0; rest != NULL && i < answers->count; i++) {
        size_t size = answers->pieces[i].iov_len;
        if (sent >= size) {
            sent -= size;
            continue;
        }
        PyObject *view = PyMemoryView_FromObject(answers->views[i].obj);
        PyObject *part = view != NULL ? PySequence_GetSlice(view, (Py_ssize_t)sent, (Py_ssize_t)size) : NULL;
        if (part == NULL || PyList_Append(rest, part) < 0) {
            Py_CLEAR(rest);
        }
        Py_XDECREF(part);
        Py_XDECREF(view);
        sent = 0;
    }
    PyObject *done = rest != NULL ? PyObject_CallMethodOneArg(transport, str_writelines, rest) : NULL;
    Py_XDECREF(rest);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Whether a method of `object` gives False or 0. */
static int
gives_nothing(PyObject *object, PyObject *method)
{
    PyObject *given = PyObject_CallMethodNoArgs(object, method);
    int is_something = given != NULL ? PyObject_IsTrue(given) : -1;
    Py_XDECREF(given);
    return is_something == 0;
}

/* Only then is the file number still the connection's, and nothing else on its way to the socket. */
static int
is_open_and_empty(PyObject *transport)
{
    return gives_nothing(transport, str_is_transport_closing) && gives_nothing(transport, str_unsent);
}

/* 1 when everything is done, 0 where the twin has to go on, -1 with an exception. */
static int
send_plainly(PyObject *connection, Py_ssize_t slots_max)
{
    int is_good = 1;
    PyObject *slots = slot(&connection_layout, connection, C_SLOTS);
    PyObject *transport = slot(&connection_layout, connection, C_TRANSPORT);
    int64_t fd = slot_number(&connection_layout, connection, C_FILE_NUMBER, &is_good);
    if (!is_good || fd < 0 || slot(&connection_layout, connection, C_IS_CLOSING) != Py_False || slots == NULL ||
        transport == NULL || transport == Py_None || PyObject_Size(slots) >= slots_max) {
        return 0;
    }
    Py_INCREF(transport); /* A client that is gone takes it from the connection. */
    Answers answers;
    answers.count = answers.lent_count = 0;
    answers.size = 0;
    int is_plain = is_open_and_empty(transport);
    int outcome = PyErr_Occurred() ? -1 : 0;
    while (is_plain && !outcome) {
        outcome = gather(slots, &answers);
        if (outcome < 0 || !answers.count) {
            break;
        }
        size_t sent = send_now((int)fd, &answers);
        if (sent < answers.size) {
            is_plain = 0;
            if (leave_to(transport, &answers, sent) < 0) {
                outcome = -1;
            }
        }
        release(&answers);
    }
    release(&answers);
    Py_DECREF(transport);
    return outcome;
}

static PyObject *
send_ready(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t slots_max = count == 2 && PyList_Check(arguments[0]) ? PyLong_AsSsize_t(arguments[1]) : -1;
    if (slots_max < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "send_ready(connections, slots_max)");
        }
        return NULL;
    }
    if (connection_layout.type == NULL && learn_layout(&connection_layout) < 0) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(arguments[0]); i++) {
        PyObject *connection = Py_NewRef(PyList_GET_ITEM(arguments[0], i));
        int outcome = 0;
        if (is_kind_of(&connection_layout, connection)) {
            set_slot(&connection_layout, connection, C_IS_ANSWERING, Py_False);
            outcome = send_plainly(connection, slots_max);
        }
        if (outcome == 0) {
            PyObject *done = PyObject_CallMethodNoArgs(connection, str_flush);
            outcome = done == NULL ? -1 : 1;
            Py_XDECREF(done);
        }
        Py_DECREF(connection);
        if (outcome < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"send_ready", (PyCFunction)(void (*)(void))send_ready, METH_FASTCALL,
     "send_ready(connections, slots_max): send the answers of each whose turn has come."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sending", "Answers, straight to the socket.", -1, methods,
                                    NULL,                  NULL,       NULL,                               NULL};

static const Name names[] = {
    {&str_flush, "flush"},
    {&str_chunks, "chunks"},
    {&str_popleft, "popleft"},
    {&str_is_transport_closing, "is_closing"},
    {&str_unsent, "get_write_buffer_size"},
    {&str_writelines, "writelines"},
    {&str_is_lent, "is_lent"},
    {&str_copied_bytes, "copied_bytes"},
};

PyMODINIT_FUNC
PyInit__sending(void)
{
    if (intern_names(names, sizeof names / sizeof *names) < 0) {
        return NULL;
    }
    return PyModule_Create(&module);
}
