/* holder.c - the node's side of its holder: see holder.h. */
#include "pool/node/holder.h"

#include "base/fiber/sched.h"
#include "base/log.h"
#include "base/mutant.h"
#include "pool/node/holder_wire.h"
#include "pool/node/mapper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A node that was killed just now may have its holder for a moment more. */
#define BUSY_TRIES 200
#define BUSY_PAUSE_NS UINT64_C(10000000)
#define BACKLOG 16

struct holder {
	struct reef_keep keep;
	struct reef_holder_options options;
	struct sockaddr_un address;
	int fd;	     /* -1: the holder is gone, and none could be started */
	bool failed; /* that was said */
	/* What it has, to be given to another: (3). */
	struct reef_keep_head head;
	struct reef_kept_extent *extents; /* the memory is the node's */
	uint32_t extents_count, extents_room;
	struct told_client {
		uint32_t session, number;
		int pidfd; /* our own */
	} * clients;
	uint32_t clients_count, clients_room;
};

static struct holder *holder_of(struct reef_keep *keep)
{
	return (struct holder *)keep;
}

/* --- finding and starting one --- */

static int connect_holder(struct holder *holder)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&holder->address,
		    sizeof(holder->address))) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	holder->fd = fd;
	return 0;
}

static int start_holder(struct holder *holder)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	unlink(holder->address.sun_path); /* nobody listens there */
	if (bind(fd, (struct sockaddr *)&holder->address,
		 sizeof(holder->address)) ||
	    listen(fd, BACKLOG))
		rc = -errno;
	else
		rc = holder->options.start(holder->options.context, fd);
	close(fd);
	return rc ? rc : connect_holder(holder);
}

static int find_holder(struct holder *holder)
{
	int rc = connect_holder(holder);

	return rc == -ENOENT || rc == -ECONNREFUSED ? start_holder(holder) : rc;
}

/* --- saying something --- */

static int say(struct holder *holder, uint32_t kind,
	       const struct reef_keep_line *line, int fd)
{
	struct holder_message message = {
		.magic = HOLDER_MAGIC,
		.kind = kind,
		.head = holder->head,
	};

	if (line)
		message.line = *line;
	return holder->fd < 0 ? -EPIPE : holder_send(holder->fd, &message, fd);
}

static int say_client(const struct holder *holder,
		      const struct told_client *client)
{
	struct holder_message message = {
		.magic = HOLDER_MAGIC,
		.kind = client->pidfd < 0 ? HOLDER_CLIENT_GONE : HOLDER_CLIENT,
		.session = client->session,
		.number = client->number,
	};

	return holder->fd < 0
		       ? -EPIPE
		       : holder_send(holder->fd, &message, client->pidfd);
}

static int say_extents(struct holder *holder)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < holder->extents_count; i++)
		rc = say(holder, HOLDER_ADD, &holder->extents[i].line,
			 holder->extents[i].memory->fd);
	return rc;
}

/* Give everything to another holder: this one is gone. It knows who may have
 * the memory mapped before it has any: (4). */
static int replace_holder(struct holder *holder)
{
	uint32_t i;
	int rc;

	if (holder->fd >= 0)
		close(holder->fd);
	holder->fd = -1;
	rc = start_holder(holder);
	if (!rc)
		rc = say(holder, HOLDER_NOTE, NULL, -1);
	if (!rc && REEF_MUTATED(KEEP_PIDFDS_LAST))
		rc = say_extents(holder);
	for (i = 0; !rc && i < holder->clients_count; i++)
		if (!REEF_MUTATED(KEEP_PIDFDS_LOST))
			rc = say_client(holder, &holder->clients[i]);
	if (!rc && !REEF_MUTATED(KEEP_PIDFDS_LAST))
		rc = say_extents(holder);
	if (!rc || !holder->failed)
		reef_log(rc ? REEF_LOG_ERROR : REEF_LOG_WARNING, "node",
			 rc ? "its holder is gone, and no other can be "
			      "started: %s"
			    : "its holder was gone; another has the memory "
			      "now%.0s",
			 reef_error_text(rc));
	holder->failed = rc != 0;
	return rc;
}

/* True for what is returned if the holder has ended. */
static bool is_gone(int rc)
{
	return rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN;
}

static int say_surely(struct holder *holder, uint32_t kind,
		      const struct reef_keep_line *line, int fd)
{
	int rc = say(holder, kind, line, fd);

	if (!is_gone(rc))
		return rc;
	rc = replace_holder(holder);
	return rc ? rc : say(holder, kind, line, fd);
}

/* --- what is with it --- */

static uint32_t find_extent(const struct holder *holder, uint32_t extent)
{
	uint32_t i = 0;

	while (i < holder->extents_count &&
	       holder->extents[i].line.extent != extent)
		i++;
	return i;
}

static int note_extent(struct holder *holder, const struct reef_keep_line *line,
		       struct reef_memory *memory)
{
	uint32_t room = holder->extents_room ? 2 * holder->extents_room : 64;
	uint32_t at = find_extent(holder, line->extent);
	struct reef_kept_extent *grown;

	if (at == holder->extents_room) {
		grown = realloc(holder->extents, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		holder->extents = grown;
		holder->extents_room = room;
	}
	holder->extents[at] = (struct reef_kept_extent){*line, memory};
	holder->extents_count += at == holder->extents_count;
	return 0;
}

static int holder_add(struct reef_keep *keep, const struct reef_keep_line *line,
		      struct reef_memory *memory)
{
	struct holder *holder = holder_of(keep);
	int rc = say_surely(holder, HOLDER_ADD, line, memory->fd);

	return rc ? rc : note_extent(holder, line, memory);
}

static void holder_forget(struct reef_keep *keep, uint32_t extent)
{
	struct reef_keep_line line = {.extent = extent};
	struct holder *holder = holder_of(keep);
	uint32_t at = find_extent(holder, extent);

	if (at < holder->extents_count)
		holder->extents[at] = holder->extents[--holder->extents_count];
	say_surely(holder, HOLDER_FORGET, &line, -1);
}

static bool is_same_head(const struct reef_keep_head *a,
			 const struct reef_keep_head *b)
{
	return a->pool == b->pool && a->node == b->node &&
	       a->broker_epoch == b->broker_epoch &&
	       a->followed_start == b->followed_start &&
	       a->confirmed_epoch == b->confirmed_epoch &&
	       a->confirmed_start == b->confirmed_start &&
	       a->confirmed == b->confirmed && a->remembers == b->remembers &&
	       a->image == b->image;
}

static void holder_note(struct reef_keep *keep,
			const struct reef_keep_head *head)
{
	struct holder *holder = holder_of(keep);

	if (is_same_head(&holder->head, head))
		return;
	holder->head = *head;
	say_surely(holder, HOLDER_NOTE, NULL, -1);
}

/* See whether the holder is still there: it says nothing by itself. */
static void holder_tend(struct reef_keep *keep)
{
	struct holder *holder = holder_of(keep);
	struct pollfd one = {.fd = holder->fd, .events = POLLIN};

	if (holder->fd < 0 || poll(&one, 1, 0) > 0)
		replace_holder(holder);
}

/* --- whom it knows --- */

static void forget_client(struct holder *holder, uint32_t at)
{
	close(holder->clients[at].pidfd);
	holder->clients[at] = holder->clients[--holder->clients_count];
}

static void forget_ended(struct holder *holder)
{
	uint32_t i = 0;

	while (i < holder->clients_count)
		if (mapper_has_ended(holder->clients[i].pidfd))
			forget_client(holder, i);
		else
			i++;
}

/* Remember a client, with a pidfd of our own. */
static int note_client(struct holder *holder, uint32_t session, uint32_t number,
		       int pidfd)
{
	uint32_t room = holder->clients_room ? 2 * holder->clients_room : 64;
	struct told_client *grown;

	if (holder->clients_count == holder->clients_room)
		forget_ended(holder);
	if (holder->clients_count == holder->clients_room) {
		grown = realloc(holder->clients, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		holder->clients = grown;
		holder->clients_room = room;
	}
	pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
	if (pidfd < 0)
		return -errno;
	holder->clients[holder->clients_count++] =
		(struct told_client){session, number, pidfd};
	return 0;
}

int reef_holder_let_in(void *keep, uint32_t session, uint32_t number, int pidfd)
{
	struct holder *holder = holder_of(keep);
	int rc = note_client(holder, session, number, pidfd);

	if (rc)
		return rc;
	rc = say_client(holder, &holder->clients[holder->clients_count - 1]);
	/* Another holder is told of all, of this one too. */
	if (is_gone(rc))
		rc = replace_holder(holder);
	if (rc)
		forget_client(holder, holder->clients_count - 1);
	return rc;
}

void reef_holder_let_go(void *keep, uint32_t session, uint32_t number)
{
	struct told_client gone = {session, number, -1};
	struct holder *holder = holder_of(keep);
	uint32_t i = 0;

	while (i < holder->clients_count)
		if (holder->clients[i].session == session &&
		    holder->clients[i].number == number)
			forget_client(holder, i);
		else
			i++;
	say_client(holder, &gone);
}

/* --- taking over --- */

static int grow(void **items, uint32_t count, size_t size)
{
	void *grown;

	if (count & (count - 1)) /* room doubles */
		return 0;
	grown = realloc(*items, (count ? 2 * (size_t)count : 1) * size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	return 0;
}

static int take_extent(struct holder *holder, struct reef_memory_options like,
		       const struct reef_keep_line *line, int *fd,
		       struct reef_kept *out)
{
	struct reef_memory *memory;
	int rc;

	like.size = line->size;
	rc = grow((void **)&out->extents, out->extents_count,
		  sizeof(*out->extents));
	if (!rc)
		rc = reef_memory_adopt(&like, *fd, &memory);
	if (rc)
		return rc;
	*fd = -1;
	memory->kept = true;
	out->extents[out->extents_count++] =
		(struct reef_kept_extent){*line, memory};
	return note_extent(holder, line, memory);
}

static int take_client(struct holder *holder,
		       const struct holder_message *message, int *fd,
		       struct reef_kept *out)
{
	int rc = grow((void **)&out->clients, out->clients_count,
		      sizeof(*out->clients));

	if (!rc)
		rc = note_client(holder, message->session, message->number,
				 *fd);
	if (rc)
		return rc;
	out->clients[out->clients_count++] = (struct reef_kept_client){
		.session = message->session,
		.pidfd = *fd,
	};
	*fd = -1;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = ((const struct reef_kept_extent *)a)->line.extent;
	uint32_t y = ((const struct reef_kept_extent *)b)->line.extent;

	return (x > y) - (x < y);
}

/* Receive all that the holder has.  -EBUSY: it serves another node. */
static int receive_all(struct holder *holder,
		       const struct reef_memory_options *like,
		       struct reef_kept *out)
{
	struct holder_message message = {.kind = 0};
	int fd, rc = say(holder, HOLDER_TAKE, NULL, -1);

	if (rc)
		return rc == -EPIPE || rc == -ECONNRESET ? -EBUSY : rc;
	while (!rc && message.kind != HOLDER_END) {
		rc = holder_receive(holder->fd, &message, &fd, true);
		if (rc <= 0)
			return rc ? rc : -EBUSY;
		rc = 0;
		if (message.kind == HOLDER_HEAD)
			out->head = holder->head = message.head;
		else if (message.kind == HOLDER_EXTENT)
			rc = take_extent(holder, *like, &message.line, &fd,
					 out);
		else if (message.kind == HOLDER_CLIENT)
			rc = take_client(holder, &message, &fd, out);
		if (fd >= 0)
			close(fd);
	}
	if (out->extents_count)
		qsort(out->extents, out->extents_count, sizeof(*out->extents),
		      compare_numbers);
	return rc;
}

static void forget_all(struct holder *holder)
{
	holder->extents_count = 0;
	while (holder->clients_count)
		forget_client(holder, holder->clients_count - 1);
}

static int holder_take(struct reef_keep *keep,
		       const struct reef_memory_options *like,
		       struct reef_kept *out)
{
	struct holder *holder = holder_of(keep);
	int rc, tries = 0;

	do {
		rc = holder->fd < 0 ? find_holder(holder) : 0;
		if (!rc)
			rc = receive_all(holder, like, out);
		if (rc) {
			reef_kept_fini(out);
			forget_all(holder);
			close(holder->fd);
			holder->fd = -1;
		}
	} while (rc == -EBUSY && ++tries < BUSY_TRIES &&
		 !reef_sleep(BUSY_PAUSE_NS));
	return rc;
}

/* --- at a clean stop --- */

static int holder_save(struct reef_keep *keep, const struct reef_kept *kept)
{
	return 1; /* it has all of it */
}

static void holder_release(struct reef_keep *keep)
{
	struct holder *holder = holder_of(keep);

	if (holder->fd < 0)
		return;
	if (!say(holder, HOLDER_GO, NULL, -1))
		unlink(holder->address.sun_path);
	close(holder->fd);
	holder->fd = -1;
	forget_all(holder);
}

static const struct reef_keep_ops holder_ops = {
	.take = holder_take,
	.add = holder_add,
	.forget = holder_forget,
	.note = holder_note,
	.tend = holder_tend,
	.save = holder_save,
	.release = holder_release,
};

int reef_holder_open(const struct reef_holder_options *options,
		     struct reef_keep **out)
{
	struct holder *holder;
	int rc;

	if (strlen(options->path) >= sizeof(holder->address.sun_path))
		return -ENAMETOOLONG;
	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return -ENOMEM;
	holder->keep.ops = &holder_ops;
	holder->options = *options;
	holder->options.path = NULL;
	holder->address.sun_family = AF_UNIX;
	snprintf(holder->address.sun_path, sizeof(holder->address.sun_path),
		 "%s", options->path);
	holder->fd = -1;
	rc = options->only_found ? connect_holder(holder) : 0;
	if (rc) {
		free(holder);
		return rc == -ECONNREFUSED ? -ENOENT : rc;
	}
	*out = &holder->keep;
	return 0;
}

void reef_holder_close(struct reef_keep *keep)
{
	struct holder *holder = holder_of(keep);

	if (!keep)
		return;
	/* Who has nothing waits for nobody. */
	if (!holder->extents_count)
		holder_release(keep);
	if (holder->fd >= 0)
		close(holder->fd);
	forget_all(holder);
	free(holder->extents);
	free(holder->clients);
	free(holder);
}
