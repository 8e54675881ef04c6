/* watch.c - see watch.h.
 *
 *	begin --> a message is under way --all sent--> WAITING (suspended)
 *	             ^                                    |
 *	             +------- a new picture: resumed -----+
 *
 * A message is texts of the watcher's own (events) and then the picture, of
 * which all watchers have a reference. */
#include "cmd/http/watch.h"

#include "cmd/print/json.h"
#include "pool/rpc.h"
#include "wire/row.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define BLOCK 4096u /* bytes that are asked for at once */

/* A picture, as it is sent. */
struct picture {
	uint32_t references;
	size_t size;
	char *text;
};

struct event {
	uint64_t number;
	size_t size;
	char *text; /* as it is sent */
};

struct watcher {
	struct watch *watch;
	struct MHD_Connection *connection;
	struct watcher *next;
	bool is_waiting;	 /* suspended */
	uint64_t picture_number; /* the last that it has or had */
	uint64_t start, number;	 /* of the last event that it has or had */
	char *own;		 /* goes first */
	size_t own_size, sent;	 /* sent: of both */
	struct picture *picture; /* NULL: it waits for one */
};

struct watch {
	void (*wake)(void *context);
	void *context;
	uint64_t due_ns; /* the publisher's */
	/* Of all threads, with the lock. */
	pthread_mutex_t lock;
	struct watcher *watchers;
	uint32_t count;
	bool is_over;
	struct picture *picture; /* the newest; NULL: none yet, or too old */
	uint64_t picture_number, picture_ns;
	uint64_t start;	 /* of the broker */
	uint64_t newest; /* event; those before are in `events` */
	struct event events[WATCH_EVENTS]; /* by number; size 0: none */
};

struct watch *watch_create(void (*wake)(void *context), void *context)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	pthread_mutex_init(&watch->lock, NULL);
	watch->wake = wake;
	watch->context = context;
	return watch;
}

/* --- events --- */

/* With the lock held. */
static void forget_events(struct watch *watch)
{
	for (uint32_t i = 0; i < WATCH_EVENTS; i++) {
		free(watch->events[i].text);
		watch->events[i] = (struct event){0};
	}
	watch->newest = 0;
}

/* An event as it is sent; without memory it has no text, and is left out. */
static struct event make_event(uint64_t start, const struct reef_row_event *row)
{
	struct event event = {.number = row->number};
	struct reef_json json = {
		.stream = open_memstream(&event.text, &event.size)};

	if (!json.stream)
		return event;
	fprintf(json.stream, "event: event\nid: %llu-%llu\ndata: ",
		(unsigned long long)start, (unsigned long long)row->number);
	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_number(&json, "event", row->number);
	reef_json_number(&json, "age_ns", row->age_ns);
	reef_json_text(&json, "text", row->text);
	reef_json_end(&json);
	fputc('\n', json.stream);
	if (fclose(json.stream)) {
		free(event.text);
		event.text = NULL;
		event.size = 0;
	}
	return event;
}

void watch_take_events(struct watch *watch, const struct reef_answer *answer)
{
	const uint64_t start = answer->body.reply.status.broker_epoch;
	struct reef_cursor_in in = {.bytes = answer->body.rows,
				    .left = answer->body.rows_size};
	struct event *event;
	struct reef_row row;

	pthread_mutex_lock(&watch->lock);
	if (start != watch->start)
		forget_events(watch);
	watch->start = start;
	while (reef_row_decode(&in, &row) > 0) {
		if (row.row != REEF_ROW_EVENT ||
		    row.event.number <= watch->newest)
			continue;
		event = &watch->events[row.event.number % WATCH_EVENTS];
		free(event->text);
		*event = make_event(start, &row.event);
		watch->newest = row.event.number;
	}
	pthread_mutex_unlock(&watch->lock);
}

/* --- pictures --- */

static void picture_unref(struct picture *picture)
{
	if (!picture || --picture->references)
		return;
	free(picture->text);
	free(picture);
}

uint64_t watch_due_ns(struct watch *watch)
{
	uint64_t due_ns;

	pthread_mutex_lock(&watch->lock);
	due_ns = watch->count ? watch->due_ns : UINT64_MAX;
	pthread_mutex_unlock(&watch->lock);
	return due_ns;
}

/* Show a message, which is taken over; NULL: there was no memory for it, and
 * the next one comes in a second. */
static void show(struct watch *watch, char *text, size_t size)
{
	struct picture *picture = text ? malloc(sizeof(*picture)) : NULL;
	struct watcher *watcher;

	if (!picture)
		free(text);
	else
		*picture = (struct picture){1, size, text};
	pthread_mutex_lock(&watch->lock);
	watch->due_ns = reef_now_ns() + SECOND;
	picture_unref(watch->picture);
	watch->picture = picture;
	watch->picture_number++;
	watch->picture_ns = reef_now_ns();
	for (watcher = watch->watchers; watcher; watcher = watcher->next) {
		if (!watcher->is_waiting)
			continue;
		watcher->is_waiting = false;
		MHD_resume_connection(watcher->connection);
	}
	pthread_mutex_unlock(&watch->lock);
}

void watch_show(struct watch *watch, char *json, size_t size)
{
	size_t text_size = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &text_size);

	if (out) {
		fprintf(out, "event: status\nid: %llu-%llu\ndata: ",
			(unsigned long long)watch->start,
			(unsigned long long)watch->newest);
		/* It ends with a newline: json.h (3). */
		fwrite(json, 1, size, out);
		fputc('\n', out);
		if (fclose(out)) {
			free(text);
			text = NULL;
		}
	}
	free(json);
	show(watch, text, text_size);
}

void watch_show_trouble(struct watch *watch, int error)
{
	size_t size = 0;
	char *text = NULL;
	struct reef_json json = {.stream = open_memstream(&text, &size)};

	if (json.stream) {
		fprintf(json.stream, "event: trouble\ndata: ");
		reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
		reef_json_string(&json, "error", reef_error_name(error));
		reef_json_string(&json, "text", reef_error_text(error));
		reef_json_end(&json);
		fputc('\n', json.stream);
		if (fclose(json.stream)) {
			free(text);
			text = NULL;
		}
	}
	show(watch, text, size);
}

/* --- watchers --- */

/* With the lock held: put the events that a watcher has not seen into its own
 * text. Without memory they come with the next picture. */
static void gather_events(struct watcher *watcher, FILE *out)
{
	const struct watch *watch = watcher->watch;
	const struct event *event;
	uint64_t number = watcher->number;

	if (watcher->start != watch->start)
		number = 0;
	if (watch->newest > WATCH_EVENTS &&
	    number < watch->newest - WATCH_EVENTS)
		number = watch->newest - WATCH_EVENTS;
	while (number < watch->newest) {
		event = &watch->events[++number % WATCH_EVENTS];
		if (event->number == number && event->text)
			fwrite(event->text, 1, event->size, out);
	}
}

/* With the lock held: begin the next message of a watcher. False: there is none
 * yet. */
static bool begin_message(struct watcher *watcher)
{
	struct watch *watch = watcher->watch;
	FILE *out;

	if (!watch->picture ||
	    watcher->picture_number == watch->picture_number ||
	    reef_now_ns() - watch->picture_ns >= 2 * SECOND)
		return false;
	out = open_memstream(&watcher->own, &watcher->own_size);
	if (!out)
		return false;
	if (!watcher->picture_number)
		fprintf(out, "retry: 1000\n\n");
	gather_events(watcher, out);
	if (fclose(out)) {
		free(watcher->own);
		watcher->own = NULL;
		return false;
	}
	watcher->start = watch->start;
	watcher->number = watch->newest;
	watcher->picture_number = watch->picture_number;
	watcher->picture = watch->picture;
	watcher->picture->references++;
	watcher->sent = 0;
	return true;
}

/* With the lock held. */
static void end_message(struct watcher *watcher)
{
	picture_unref(watcher->picture);
	watcher->picture = NULL;
	free(watcher->own);
	watcher->own = NULL;
	watcher->own_size = 0;
}

/* With the lock held: the next bytes of the message that is under way. */
static size_t copy_bytes(struct watcher *watcher, char *room, size_t size)
{
	const bool is_own = watcher->sent < watcher->own_size;
	const char *from = is_own ? watcher->own : watcher->picture->text;
	const size_t at = watcher->sent - (is_own ? 0 : watcher->own_size);
	const size_t left =
		(is_own ? watcher->own_size : watcher->picture->size) - at;

	if (size > left)
		size = left;
	memcpy(room, from + at, size);
	watcher->sent += size;
	if (watcher->sent == watcher->own_size + watcher->picture->size)
		end_message(watcher);
	return size;
}

static ssize_t give_bytes(void *context, uint64_t position, char *room,
			  size_t size)
{
	struct watcher *watcher = context;
	struct watch *watch = watcher->watch;
	ssize_t given = 0;

	pthread_mutex_lock(&watch->lock);
	if (watch->is_over) {
		given = MHD_CONTENT_READER_END_OF_STREAM;
	} else if (watcher->picture || begin_message(watcher)) {
		given = (ssize_t)copy_bytes(watcher, room, size);
	} else {
		watcher->is_waiting = true;
		MHD_suspend_connection(watcher->connection);
	}
	pthread_mutex_unlock(&watch->lock);
	return given;
}

static void forget_watcher(void *context)
{
	struct watcher *watcher = context;
	struct watch *watch = watcher->watch;
	struct watcher **at = &watch->watchers;

	pthread_mutex_lock(&watch->lock);
	while (*at != watcher)
		at = &(*at)->next;
	*at = watcher->next;
	watch->count--;
	end_message(watcher);
	pthread_mutex_unlock(&watch->lock);
	free(watcher);
}

/* Read a number and what is to follow it. False: that is not there, or the
 * number is larger than any. */
static bool take_number(const char **text, char after, uint64_t *out)
{
	const char *digits = *text;
	char *end;

	if (*digits < '0' || *digits > '9')
		return false;
	errno = 0;
	*out = strtoull(digits, &end, 10);
	*text = end + 1;
	return !errno && *end == after;
}

/* Read "START-NUMBER". */
static int parse_id(const char *text, uint64_t *start, uint64_t *number)
{
	return take_number(&text, '-', start) && take_number(&text, 0, number)
		       ? 0
		       : -EINVAL;
}

int watch_begin(struct watch *watch, struct MHD_Connection *connection,
		const char *last_id, struct MHD_Response **out)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));
	struct MHD_Response *response;
	bool is_due, is_full;

	if (!watcher)
		return -ENOMEM;
	watcher->watch = watch;
	watcher->connection = connection;
	if (last_id && parse_id(last_id, &watcher->start, &watcher->number)) {
		free(watcher);
		return -EINVAL;
	}
	pthread_mutex_lock(&watch->lock);
	is_full = watch->count == WATCHERS_MAX || watch->is_over;
	if (!is_full) {
		watch->count++;
		watcher->next = watch->watchers;
		watch->watchers = watcher;
	}
	is_due = reef_now_ns() - watch->picture_ns >= SECOND;
	if (is_due)
		watch->due_ns = 0;
	pthread_mutex_unlock(&watch->lock);
	if (is_full) {
		free(watcher);
		return -EAGAIN;
	}
	response = MHD_create_response_from_callback(
		MHD_SIZE_UNKNOWN, BLOCK, give_bytes, watcher, forget_watcher);
	if (!response) {
		forget_watcher(watcher);
		return -ENOMEM;
	}
	if (is_due)
		watch->wake(watch->context);
	*out = response;
	return 0;
}

uint32_t watch_count(struct watch *watch)
{
	uint32_t count;

	pthread_mutex_lock(&watch->lock);
	count = watch->count;
	pthread_mutex_unlock(&watch->lock);
	return count;
}

void watch_end(struct watch *watch)
{
	struct watcher *watcher;

	pthread_mutex_lock(&watch->lock);
	watch->is_over = true;
	for (watcher = watch->watchers; watcher; watcher = watcher->next) {
		if (watcher->is_waiting)
			MHD_resume_connection(watcher->connection);
		watcher->is_waiting = false;
	}
	pthread_mutex_unlock(&watch->lock);
}
