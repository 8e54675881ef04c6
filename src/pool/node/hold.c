/* hold.c - the holder's process: see holder.h.
 *
 * What one node sent is read to its end before the next one is let in, so that
 * this one is given all of it. */
#include "pool/node/holder.h"

#include "pool/node/hold_save.h"
#include "pool/node/holder_wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct held_client {
	uint32_t session, number;
	int pidfd;
};

struct hold {
	int listen_fd, timer_fd, node_fd; /* node_fd -1: none is there */
	const struct reef_holder_run_options *options;
	struct reef_holder_state state; /* that was told last */
	struct reef_keep_head head;
	struct held_extent *extents;
	struct held_client *clients;
	uint32_t extents_count, extents_room, clients_count, clients_room;
	bool over, told; /* told: by the node */
};

/* Make room for one more in an array.  -ENOMEM. */
static int make_room(void **items, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 64;
	void *grown;

	if (count < *room)
		return 0;
	grown = realloc(*items, more * size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*room = more;
	return 0;
}

static uint32_t find_extent(const struct hold *hold, uint32_t extent)
{
	uint32_t i = 0;

	while (i < hold->extents_count &&
	       hold->extents[i].line.extent != extent)
		i++;
	return i;
}

static void forget_extent(struct hold *hold, uint32_t extent)
{
	uint32_t i = find_extent(hold, extent);

	if (i == hold->extents_count)
		return;
	close(hold->extents[i].fd);
	hold->extents[i] = hold->extents[--hold->extents_count];
}

static int add_extent(struct hold *hold, const struct reef_keep_line *line,
		      int fd)
{
	int rc = make_room((void **)&hold->extents, hold->extents_count,
			   &hold->extents_room, sizeof(*hold->extents));

	if (rc)
		return rc;
	forget_extent(hold, line->extent);
	hold->extents[hold->extents_count++] = (struct held_extent){*line, fd};
	return 0;
}

static void forget_client(struct hold *hold, uint32_t at)
{
	close(hold->clients[at].pidfd);
	hold->clients[at] = hold->clients[--hold->clients_count];
}

/* Forget whoever has ended: such a one has nothing mapped any more. */
static void forget_ended(struct hold *hold)
{
	struct pollfd one = {.events = POLLIN};
	uint32_t i = 0;

	while (i < hold->clients_count) {
		one.fd = hold->clients[i].pidfd;
		if (poll(&one, 1, 0) > 0)
			forget_client(hold, i);
		else
			i++;
	}
}

static int add_client(struct hold *hold, const struct holder_message *message,
		      int fd)
{
	int rc;

	if (hold->clients_count == hold->clients_room)
		forget_ended(hold);
	rc = make_room((void **)&hold->clients, hold->clients_count,
		       &hold->clients_room, sizeof(*hold->clients));
	if (rc)
		return rc;
	hold->clients[hold->clients_count++] =
		(struct held_client){message->session, message->number, fd};
	return 0;
}

static void client_gone(struct hold *hold, const struct holder_message *message)
{
	uint32_t i = 0;

	while (i < hold->clients_count)
		if (hold->clients[i].session == message->session &&
		    hold->clients[i].number == message->number)
			forget_client(hold, i);
		else
			i++;
}

/* Give everything to the node that has come. */
static int give_all(struct hold *hold)
{
	struct holder_message message = {
		.magic = HOLDER_MAGIC, .kind = HOLDER_HEAD, .head = hold->head};
	int rc = holder_send(hold->node_fd, &message, -1);
	uint32_t i;

	message.kind = HOLDER_EXTENT;
	for (i = 0; !rc && i < hold->extents_count; i++) {
		message.line = hold->extents[i].line;
		rc = holder_send(hold->node_fd, &message, hold->extents[i].fd);
	}
	forget_ended(hold);
	message.kind = HOLDER_CLIENT;
	for (i = 0; !rc && i < hold->clients_count; i++) {
		message.session = hold->clients[i].session;
		message.number = hold->clients[i].number;
		rc = holder_send(hold->node_fd, &message,
				 hold->clients[i].pidfd);
	}
	message.kind = HOLDER_END;
	return rc ? rc : holder_send(hold->node_fd, &message, -1);
}

/* Do what a node says. The descriptor is kept, or closed by the caller. */
static int obey(struct hold *hold, const struct holder_message *message,
		int *fd)
{
	int rc = 0;

	switch (message->kind) {
	case HOLDER_TAKE:
		return give_all(hold);
	case HOLDER_ADD:
		rc = *fd < 0 ? -EPROTO : add_extent(hold, &message->line, *fd);
		break;
	case HOLDER_CLIENT:
		rc = *fd < 0 ? -EPROTO : add_client(hold, message, *fd);
		break;
	case HOLDER_FORGET:
		forget_extent(hold, message->line.extent);
		return 0;
	case HOLDER_CLIENT_GONE:
		client_gone(hold, message);
		return 0;
	case HOLDER_NOTE:
		hold->head = message->head;
		return 0;
	case HOLDER_GO:
		hold->over = hold->told = true;
		return 0;
	default:
		return -EPROTO;
	}
	if (!rc)
		*fd = -1; /* it is in a table */
	return rc;
}

static void set_timer(const struct hold *hold, uint64_t ns)
{
	const struct itimerspec spec = {
		.it_value = {.tv_sec = (time_t)(ns / 1000000000),
			     .tv_nsec = (long)(ns % 1000000000)},
	};

	timerfd_settime(hold->timer_fd, 0, &spec, NULL);
}

/* Read what the node has sent. One that ends, or talks nonsense, is left. */
static void serve_node(struct hold *hold)
{
	struct holder_message message;
	int fd, rc;

	while (hold->node_fd >= 0 && !hold->over) {
		rc = holder_receive(hold->node_fd, &message, &fd, false);
		if (rc == -EAGAIN)
			return;
		if (rc > 0)
			rc = obey(hold, &message, &fd);
		else if (rc == 0)
			rc = -ECONNRESET;
		if (fd >= 0)
			close(fd);
		if (rc < 0) {
			close(hold->node_fd);
			hold->node_fd = -1;
			set_timer(hold, hold->options->linger_ns);
		}
	}
}

static void let_node_in(struct hold *hold)
{
	struct ucred who;
	socklen_t size = sizeof(who);
	int fd = accept4(hold->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (hold->node_fd >= 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) ||
	    who.uid != geteuid()) {
		close(fd);
		return;
	}
	hold->node_fd = fd;
	set_timer(hold, 0);
}

static void close_all(struct hold *hold)
{
	while (hold->extents_count)
		close(hold->extents[--hold->extents_count].fd);
	while (hold->clients_count)
		close(hold->clients[--hold->clients_count].pidfd);
	free(hold->extents);
	free(hold->clients);
	if (hold->node_fd >= 0)
		close(hold->node_fd);
	close(hold->timer_fd);
}

static void tell_state(struct hold *hold)
{
	struct reef_holder_state state = {
		.pool = hold->head.pool,
		.node = hold->head.node,
		.extents = hold->extents_count,
		.has_node = hold->node_fd >= 0,
	};
	const struct reef_holder_state *told = &hold->state;

	for (uint32_t i = 0; i < hold->extents_count; i++)
		state.bytes += hold->extents[i].line.size;
	if (state.pool == told->pool && state.node == told->node &&
	    state.extents == told->extents && state.bytes == told->bytes &&
	    state.has_node == told->has_node)
		return;
	hold->state = state;
	hold->options->changed(hold->options->context, &state);
}

/* Nobody came for as long as was said: end who has the memory mapped, save it,
 * and say what came of it. */
static void give_up(struct hold *hold)
{
	struct reef_holder_end end = {.tried = hold->options->folder != NULL};
	int *pidfds = calloc(hold->clients_count + 1, sizeof(*pidfds));
	uint32_t i;

	hold->over = true;
	if (!hold->extents_count) {
		free(pidfds);
		return;
	}
	for (i = 0; pidfds && i < hold->clients_count; i++)
		pidfds[i] = hold->clients[i].pidfd;
	end.rc = pidfds ? hold_end_mappers(pidfds, i, hold->extents,
					   hold->extents_count, &end.ended)
			: -ENOMEM;
	if (end.rc == 0 && end.tried)
		end.rc = hold_save(hold->options->folder, &hold->head,
				   hold->extents, hold->extents_count);
	hold->options->gave_up(hold->options->context, &end);
	free(pidfds);
}

int reef_holder_run(const struct reef_holder_run_options *options)
{
	struct hold hold = {
		.listen_fd = options->listen_fd,
		.node_fd = -1,
		.options = options,
		.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC),
	};
	struct pollfd fds[3] = {{.fd = hold.timer_fd, .events = POLLIN},
				{.fd = options->listen_fd, .events = POLLIN},
				{.events = POLLIN}};
	int rc = 0;

	if (hold.timer_fd < 0)
		return -errno;
	set_timer(&hold, options->linger_ns);
	while (!hold.over) {
		fds[2].fd = hold.node_fd;
		rc = poll(fds, 3, -1);
		if (rc < 0 && errno != EINTR)
			break;
		serve_node(&hold);
		if (rc > 0 && fds[1].revents)
			let_node_in(&hold);
		if (rc > 0 && fds[0].revents && hold.node_fd < 0)
			give_up(&hold);
		tell_state(&hold);
	}
	rc = rc < 0 ? -errno : hold.told;
	close_all(&hold);
	return rc;
}
