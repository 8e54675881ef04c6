/* name.c - names of a space, and the broker's time: each call is one question
 * to the broker. */
#include "pool/client/handle/space.h"

#include <stdlib.h>
#include <string.h>

/* The longest name that a message can hold; the pool's limit is lower. */
#define NAME_SIZE_MAX 16384

static int check_name(struct reef_space *space, const char *name)
{
	int rc = client_handle_check(space->reef);
	size_t size;

	if (rc)
		return rc;
	size = strlen(name);
	if (!size)
		return -EINVAL;
	return size > NAME_SIZE_MAX ? -ENAMETOOLONG : 0;
}

static struct reef_text text_of(const char *name)
{
	return (struct reef_text){name, (uint16_t)strlen(name)};
}

int reef_name_bind(struct reef_space *space, const char *name, uint64_t value,
		   uint64_t *generation)
{
	struct reef_body body = {
		.ask.name_bind = {.space = space->space->id, .value = value},
	};
	struct reef_answer answer = {0};
	int rc = check_name(space, name);

	if (rc)
		return rc;
	body.ask.name_bind.name = text_of(name);
	rc = reef_client_ask(space->reef, REEF_POOL_NAME_BIND, true, &body,
			     &answer);
	if (!rc && generation)
		*generation = answer.body.reply.name_bind.generation;
	reef_answer_free(&answer);
	return rc;
}

int reef_name_replace(struct reef_space *space, const char *name,
		      uint64_t generation, uint64_t value, uint64_t *now)
{
	struct reef_body body = {
		.ask.name_replace = {.space = space->space->id,
				     .value = value,
				     .generation = generation},
	};
	struct reef_answer answer = {0};
	int rc = check_name(space, name);

	if (rc)
		return rc;
	body.ask.name_replace.name = text_of(name);
	rc = reef_client_ask(space->reef, REEF_POOL_NAME_REPLACE, true, &body,
			     &answer);
	if (!rc && now)
		*now = answer.body.reply.name_bind.generation;
	reef_answer_free(&answer);
	return rc;
}

int reef_name_lookup(struct reef_space *space, const char *name,
		     uint64_t *value, uint64_t *generation)
{
	struct reef_answer answer = {0};
	struct reef_body body = {.ask.name_lookup.space = space->space->id};
	int rc = check_name(space, name);

	if (rc)
		return rc;
	body.ask.name_lookup.name = text_of(name);
	rc = reef_client_ask(space->reef, REEF_POOL_NAME_LOOKUP, false, &body,
			     &answer);
	if (!rc && value)
		*value = answer.body.reply.name_lookup.value;
	if (!rc && generation)
		*generation = answer.body.reply.name_lookup.generation;
	reef_answer_free(&answer);
	return rc;
}

int reef_name_unbind(struct reef_space *space, const char *name,
		     uint64_t generation)
{
	struct reef_body body = {
		.ask.name_unbind = {.space = space->space->id,
				    .generation = generation},
	};
	int rc = check_name(space, name);

	if (rc)
		return rc;
	body.ask.name_unbind.name = text_of(name);
	return reef_client_ask(space->reef, REEF_POOL_NAME_UNBIND, true, &body,
			       NULL);
}

struct listing {
	int (*each)(void *context, const char *name, uint64_t value,
		    uint64_t generation);
	void *context;
	char *last; /* the name that was listed last */
};

static int list_name(struct listing *listing, const struct reef_row_name *row)
{
	char *name = malloc((size_t)row->name.size + 1);

	if (!name)
		return -ENOMEM;
	if (row->name.size)
		memcpy(name, row->name.bytes, row->name.size);
	name[row->name.size] = 0;
	free(listing->last);
	listing->last = name;
	return listing->each(listing->context, name, row->value,
			     row->generation);
}

static int list_page(struct listing *listing, const struct reef_body *body)
{
	struct reef_cursor_in in = {
		.bytes = body->rows,
		.left = body->rows_size,
	};
	struct reef_row row;
	int rc;

	while ((rc = reef_row_decode(&in, &row)) == 1) {
		rc = row.row == REEF_ROW_NAME ? list_name(listing, &row.name)
					      : 0;
		if (rc)
			break;
	}
	return rc;
}

int reef_name_list(struct reef_space *space, const char *prefix,
		   int (*each)(void *context, const char *name, uint64_t value,
			       uint64_t generation),
		   void *context)
{
	struct listing listing = {.each = each, .context = context};
	struct reef_body body = {.ask.name_list.space = space->space->id};
	struct reef_answer answer = {0};
	char *before = NULL;
	bool more = true;
	int rc;

	rc = prefix && *prefix ? check_name(space, prefix)
			       : client_handle_check(space->reef);
	while (!rc && more) {
		body.ask.name_list.prefix = text_of(prefix ? prefix : "");
		body.ask.name_list.after = text_of(before ? before : "");
		rc = reef_client_ask(space->reef, REEF_POOL_NAME_LIST, false,
				     &body, &answer);
		if (rc)
			break;
		rc = list_page(&listing, &answer.body);
		/* Names come in order; a broker whose pages go round in circles
		 * is not believed. */
		more = answer.body.reply.name_list.flags & REEF_POOL_MORE &&
		       listing.last &&
		       strcmp(listing.last, before ? before : "") > 0;
		reef_answer_free(&answer);
		free(before);
		before = listing.last;
		listing.last = NULL;
	}
	free(before);
	free(listing.last);
	return rc;
}

int reef_pool_time(struct reef *reef, uint64_t *now_ns)
{
	struct reef_answer answer = {0};
	struct reef_body body = {0};
	int rc = reef_client_ask(reef, REEF_POOL_TIME, false, &body, &answer);

	if (!rc)
		*now_ns = answer.body.reply.time.unix_ns;
	reef_answer_free(&answer);
	return rc;
}
