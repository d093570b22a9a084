/* LD_PRELOAD: a disk that takes a part of every write, and is interrupted before it. Whole blocks, for O_DIRECT. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t place, int flags) {
    static int calls;
    if (calls++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    size_t left = (size_t)atoi(getenv("WRITE_BYTES_MAX"));
    struct iovec part[count];
    int taken = 0;
    while (taken < count && left > 0) {
        part[taken] = pieces[taken];
        if (part[taken].iov_len > left) part[taken].iov_len = left;
        left -= part[taken++].iov_len;
    }
    return syscall(SYS_pwritev2, fd, part, (long)taken, (long)place, 0L, flags);
}
