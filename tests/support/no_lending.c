/* LD_PRELOAD: a system that does not let memory be lent to sockets. */
#include <errno.h>
#include <sys/uio.h>

ssize_t vmsplice(int fd, const struct iovec *pieces, size_t count, unsigned int flags) {
    errno = ENOSYS;
    return -1;
}
