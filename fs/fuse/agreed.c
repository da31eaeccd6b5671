/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuse/agreed.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* The answer to an INIT that this thread handles. libfuse hands our functions the user data of the
 * handlers, which are no place for it. */
struct answer {
	_Alignas(8) char bytes[SESSION_AGREED_MAX];
	size_t size; /* more than there is room for: it is not whole */
};

static _Thread_local struct answer *answer_wanted;

/* --- libfuse's input and output ----------------------------------------------------------------*/

/* If the daemon is killed while the kernel copies a request into a page that is not there yet, the
 * copy fails, and the caller gets EIO. libfuse reads into one buffer for ever: it is made present
 * before the first read. */
static ssize_t do_read(int fd, void *buffer, size_t size, void *user_data)
{
	static _Thread_local const void *present;

	(void)user_data;
	if (present != buffer)
		memset(buffer, 0, size);
	present = buffer;
	return read(fd, buffer, size);
}

/* The sum of the parts; those that fit are copied. */
static size_t gather(struct answer *answer, const struct iovec *parts, int count)
{
	size_t size = 0;

	for (int i = 0; i < count; i++) {
		if (size + parts[i].iov_len <= sizeof(answer->bytes))
			memcpy(answer->bytes + size, parts[i].iov_base, parts[i].iov_len);
		size += parts[i].iov_len;
	}
	return size;
}

static ssize_t do_writev(int fd, struct iovec *parts, int count, void *user_data)
{
	struct answer *answer = answer_wanted;

	(void)user_data;
	if (!answer)
		return writev(fd, parts, count);
	answer->size = gather(answer, parts, count);
	return (ssize_t)answer->size;
}

/* No splice: a page that is still in a pipe when the daemon dies is lost. */
int agreed_take_connection(struct fuse_session *fuse, int connection)
{
	static const struct fuse_custom_io io = { .read = do_read, .writev = do_writev };

	return fuse_session_custom_io(fuse, &io, connection) ? -EIO : 0;
}

/* --- INIT --------------------------------------------------------------------------------------*/

static void process(struct fuse_session *fuse, struct answer *answer, const struct fuse_buf *buffer)
{
	answer_wanted = answer;
	fuse_session_process_buf(fuse, buffer);
	answer_wanted = NULL;
}

static void keep(struct session_heritage *heritage, const struct fuse_buf *buffer, size_t size,
		 const struct answer *answer)
{
	if (size > sizeof(heritage->request) || answer->size > sizeof(heritage->reply))
		return;
	memcpy(heritage->request, buffer->mem, size);
	memcpy(heritage->reply, answer->bytes, answer->size);
	heritage->request_size = (uint32_t)size;
	/* Last: a successor goes by this one. */
	atomic_store(&heritage->reply_size, (uint32_t)answer->size);
}

/* The answer is kept before the kernel has it. If the daemon dies in between, the kernel repeats
 * the request, for which the successor has the answer. */
void agreed_answer(struct fuse_session *fuse, struct session_heritage *heritage,
		   const struct fuse_buf *buffer, size_t size)
{
	const struct fuse_in_header *asked = buffer->mem;
	struct answer answer = { .size = 0 };
	struct fuse_out_header *head = (struct fuse_out_header *)answer.bytes;
	ssize_t written;

	if (!atomic_load(&heritage->reply_size)) {
		process(fuse, &answer, buffer);
		keep(heritage, buffer, size, &answer);
	} else {
		answer.size = atomic_load(&heritage->reply_size);
		memcpy(answer.bytes, heritage->reply, answer.size);
	}
	if (answer.size > sizeof(answer.bytes) || answer.size < sizeof(*head))
		return;
	head->unique = asked->unique;
	written = write(fuse_session_fd(fuse), answer.bytes, answer.size);
	(void)written; /* the kernel then ends the connection */
}

int agreed_repeat(struct fuse_session *fuse, const struct session_heritage *heritage)
{
	size_t size = atomic_load(&heritage->reply_size);
	struct fuse_buf buffer = { .mem = (void *)heritage->request,
				   .size = heritage->request_size };
	struct answer answer = { .size = 0 };

	if (!size)
		return 0; /* the kernel still waits for it */
	process(fuse, &answer, &buffer);
	return answer.size == size && !memcmp(answer.bytes, heritage->reply, size) ? 0 : -EPROTO;
}

int agreed_check(const struct fuse_lowlevel_ops *ops, void *user_data,
		 const struct session_heritage *heritage)
{
	char program[] = "shadefs", *argv[] = { program, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_session *fuse = fuse_session_new(&args, ops, sizeof(*ops), user_data);
	int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
	int rc = nowhere < 0 ? -errno : -ENOMEM;

	fuse_opt_free_args(&args);
	if (fuse && nowhere >= 0)
		rc = agreed_take_connection(fuse, nowhere);
	if (!rc)
		rc = agreed_repeat(fuse, heritage);
	if (fuse)
		fuse_session_destroy(fuse);
	return rc;
}

const struct format_line agreed_format[] = { FORMAT_SIZE(struct session_heritage),
					     FORMAT_FIELD(struct session_heritage, request),
					     FORMAT_FIELD(struct session_heritage, reply),
					     FORMAT_FIELD(struct session_heritage, request_size),
					     FORMAT_FIELD(struct session_heritage, reply_size),
					     FORMAT_SIZE(struct mount),
					     FORMAT_FIELD(struct mount, major),
					     FORMAT_FIELD(struct mount, above),
					     FORMAT_FIELD(struct mount, name),
					     FORMAT_SIZE(struct files_heritage),
					     FORMAT_FIELD(struct files_heritage, session),
					     FORMAT_NUMBER(NUMBERS_FIRST),
					     FORMAT_NUMBER(CONTROL_END),
					     FORMAT_END };
