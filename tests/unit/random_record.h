/* random_record.h - records by chance: most of them fit the state that they are
 * meant for, some nearly do. */
#ifndef TEST_RANDOM_RECORD_H
#define TEST_RANDOM_RECORD_H

#include "base/random.h"
#include "pool/broker/state/state.h"

#include <stdio.h>
#include <string.h>

struct random_record {
	struct reef_record record;
	char name[16], addresses[16];
};

static inline uint32_t random_below(struct reef_random *random, uint64_t bound)
{
	return bound ? (uint32_t)reef_random_below(random, bound) : 0;
}

static inline struct reef_text random_text(struct reef_random *random, char *to,
					   size_t size)
{
	int length = snprintf(to, size, "n%u", random_below(random, 12));

	return (struct reef_text){to, (uint16_t)length};
}

/* Numbers of things that exist, mostly. */
static inline void random_targets(struct reef_random *random,
				  const struct reef_state *state,
				  struct reef_record *record)
{
	const struct reef_state_space *spaces;
	const struct reef_state_node *nodes;
	const struct reef_state_session *sessions;
	size_t count;

	spaces = reef_state_spaces(state, &count);
	if (count)
		record->space = spaces[random_below(random, count)].id;
	nodes = reef_state_nodes(state, &count);
	if (count)
		record->node = nodes[random_below(random, count)].id;
	sessions = reef_state_sessions(state, &count);
	if (count)
		record->session = sessions[random_below(random, count)].id;
	reef_state_users(state, &count);
	record->user = count && reef_random_chance(random, 1, 2)
			       ? reef_state_users(state, &count)[0].id
			       : 0;
}

static inline void random_extent(struct reef_random *random,
				 const struct reef_state *state,
				 struct reef_record *record)
{
	const struct reef_state_extent *extents;
	size_t count;

	extents = reef_state_extents(state, &count);
	if (count) {
		extents += random_below(random, count);
		record->id = extents->number;
		record->era = extents->epoch + 1;
	}
}

static inline void random_fit(struct reef_random *random,
			      const struct reef_state *state,
			      struct reef_record *record)
{
	const struct reef_state_session *session;
	struct reef_state_summary summary;
	const struct reef_name *name;

	reef_state_summary(state, &summary);
	switch (record->type) {
	case REEF_RECORD_BROKER:
		record->value = summary.broker_epoch + 1;
		break;
	case REEF_RECORD_SETTING:
		record->id = random_below(random, REEF_SETTING_COUNT + 1);
		record->value = reef_random_chance(random, 1, 2) ? 20 : 5000;
		break;
	case REEF_RECORD_USER_ADD:
		record->id = summary.next_user;
		break;
	case REEF_RECORD_USER_ERA:
	case REEF_RECORD_USER_REMOVE:
		record->id = record->user;
		record->era =
			reef_state_user(state, record->id)
				? reef_state_user(state, record->id)->era + 1
				: 0;
		break;
	case REEF_RECORD_NODE_ADD:
		record->id = summary.next_node;
		break;
	case REEF_RECORD_NODE_RETURN:
	case REEF_RECORD_NODE_REMOVE:
		record->id = record->node;
		break;
	case REEF_RECORD_NODE_STATE:
		record->id = record->node;
		record->state = (uint8_t)random_below(random, 6);
		record->value =
			summary.pool_epoch + (record->state == REEF_NODE_DEAD);
		break;
	case REEF_RECORD_SPACE_ADD:
		record->id = summary.next_space;
		if (record->kind == REEF_SPACE_SHARED)
			record->session = 0;
		break;
	case REEF_RECORD_SPACE_QUOTA:
	case REEF_RECORD_SPACE_ERA:
	case REEF_RECORD_SPACE_REMOVE:
		record->id = record->space;
		record->era =
			reef_state_space(state, record->id)
				? reef_state_space(state, record->id)->era + 1
				: 0;
		break;
	case REEF_RECORD_EXTENT_ADD:
		record->id = summary.next_extent;
		record->size = 4096 * (1 + random_below(random, 4));
		if (reef_state_pick_ordinal(state, record->space, record->size,
					    &record->ordinal))
			record->ordinal = 0;
		break;
	case REEF_RECORD_SESSION_OPEN:
		if (reef_state_pick_session(state, &record->session))
			record->session = 0;
		break;
	case REEF_RECORD_SESSION_STATE:
		session = reef_state_session(state, record->session);
		record->state = session ? session->state + 1 : 0;
		break;
	case REEF_RECORD_NAME_REPLACE:
	case REEF_RECORD_NAME_UNBIND:
		name = reef_state_name(state, record->space, record->name);
		record->generation = name ? name->generation : 0;
		break;
	default:
		if (record->type >= REEF_RECORD_EXTENT_MOVE &&
		    record->type <= REEF_RECORD_EXTENT_REMOVE)
			random_extent(random, state, record);
	}
}

/* Somebody's request: the next one, mostly. */
static inline void random_origin(struct reef_random *random,
				 const struct reef_state *state,
				 struct reef_record *record)
{
	const struct reef_state_session *sessions;
	size_t count;

	sessions = reef_state_sessions(state, &count);
	if (count == 0)
		return;
	sessions += random_below(random, count);
	record->origin = sessions->id;
	record->request = sessions->request + random_below(random, 8) / 2;
}

/* Texts are in *out, so it must not be copied. */
static inline void random_record(struct reef_random *random,
				 const struct reef_state *state,
				 struct random_record *out)
{
	/* What makes things, more often than what ends them. */
	static const uint8_t makers[] = {
		REEF_RECORD_NODE_ADD,	  REEF_RECORD_NODE_RETURN,
		REEF_RECORD_SPACE_ADD,	  REEF_RECORD_EXTENT_ADD,
		REEF_RECORD_EXTENT_ADD,	  REEF_RECORD_SESSION_OPEN,
		REEF_RECORD_NAME_BIND,	  REEF_RECORD_NAME_BIND,
		REEF_RECORD_EXTENT_MOVED, REEF_RECORD_USER_ADD,
	};
	struct reef_record *record = &out->record;
	struct reef_state_summary summary;

	memset(out, 0, sizeof(*out));
	reef_state_summary(state, &summary);
	record->type = reef_random_chance(random, 1, 2)
			       ? makers[random_below(random, sizeof(makers))]
			       : (uint16_t)reef_random_between(
					 random, 1, REEF_RECORD_TYPES - 1);
	if (!summary.pool)
		record->type = REEF_RECORD_POOL;
	record->kind = (uint8_t)reef_random_between(random, 1, 2);
	record->keeping = (uint8_t)reef_random_between(random, 1, 2);
	record->value = reef_random_below(random, 1000) + 1;
	record->size = 4096 * (8 + reef_random_below(random, 64));
	record->incarnation = reef_random_below(random, 1000) + 1;
	record->name = random_text(random, out->name, sizeof(out->name));
	record->addresses =
		random_text(random, out->addresses, sizeof(out->addresses));
	random_targets(random, state, record);
	random_fit(random, state, record);
	if (reef_random_chance(random, 1, 3))
		random_origin(random, state, record);
	/* Now and then something is off by a little. */
	if (reef_random_chance(random, 1, 16))
		record->id++;
	if (reef_random_chance(random, 1, 16))
		record->era += 2;
	if (reef_random_chance(random, 1, 16))
		record->generation++;
}

#endif
