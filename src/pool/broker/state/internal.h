/* internal.h - what the files of the state share.
 *
 * Thread: owner. */
#ifndef REEF_POOL_BROKER_STATE_INTERNAL_H
#define REEF_POOL_BROKER_STATE_INTERNAL_H

#include "pool/broker/state/state.h"

struct reef_state {
	uint64_t pool, pool_epoch, broker_epoch, reclaim;
	uint64_t base_epoch, base; /* as in REEF_RECORD_BASE */
	uint32_t next_user, next_node, next_space, next_extent;
	uint32_t next_slot;  /* where picking a session begins */
	uint64_t next_copy;  /* id of an extent's copy */
	uint64_t generation; /* the last one given to a name */
	uint32_t owner_era;  /* of user 0, who has no entry */
	uint64_t settings[REEF_SETTING_COUNT];
	bool replaying; /* limits are not asked */

	/* Arrays in the order of their numbers; sessions by slot. */
	struct reef_state_user *users;
	struct reef_state_node *nodes;
	struct reef_state_space *spaces;
	struct reef_state_extent *extents;
	struct reef_state_session *sessions;
	struct reef_state_use *uses;
	size_t user_count, user_room;
	size_t node_count, node_room;
	size_t space_count, space_room;
	size_t extent_count, extent_room;
	size_t session_count, session_room;
	size_t use_count, use_room;

	struct reef_names names;
	/* Names of the things themselves; the value is the number. */
	struct reef_names user_names, node_names, space_names;

	/* Of extents whose label is not their number, in the order of the
	 * labels; copies.c. An entry counts while the extent has that label.
	 * There is room for one more for each twin. */
	struct reef_state_label {
		uint32_t label, number;
	} * labels;
	size_t label_count, label_room;
	size_t twin_count;

	/* Memory that check took for apply. */
	char *spare_addresses;
	size_t spare_addresses_size;
};

/* What a record needs, and what it does. Check takes memory; apply cannot fail
 * and relies on what check has seen. */
struct reef_rule {
	int (*check)(struct reef_state *state,
		     const struct reef_record *record);
	void (*apply)(struct reef_state *state,
		      const struct reef_record *record);
};

/* The rules of each file, by the type of record. */
extern const struct reef_rule reef_rules_copies[REEF_RECORD_TYPES];
extern const struct reef_rule reef_rules_members[REEF_RECORD_TYPES];
extern const struct reef_rule reef_rules_memory[REEF_RECORD_TYPES];
extern const struct reef_rule reef_rules_names[REEF_RECORD_TYPES];
extern const struct reef_rule reef_rules_nodes[REEF_RECORD_TYPES];
extern const struct reef_rule reef_rules_users[REEF_RECORD_TYPES];

/* Room for `need` items of an array.  -ENOMEM. */
int reef_state_room(void **items, size_t *room, size_t need, size_t item_size);

/* Take `index` out of an array. */
void reef_state_take_out(void *items, size_t *count, size_t index,
			 size_t item_size);

/* 0, or -EINVAL: empty, or not plain (base/text.h); -ENOSPC: over the limit. */
int reef_state_check_text(const struct reef_state *state, struct reef_text text,
			  enum reef_setting limit);

/* Check that one more is within the limit.  -ENOSPC. */
int reef_state_check_limit(const struct reef_state *state, uint64_t count,
			   enum reef_setting limit);
/* The same for what a user takes, who leaves a part to the owner. */
int reef_state_check_share(const struct reef_state *state, uint64_t count,
			   enum reef_setting limit, uint32_t user);

/* Count what a user has got, or lost; the owner's is not counted. */
void reef_state_count(struct reef_state *state, uint32_t user,
		      enum reef_limit limit, uint64_t more);
void reef_state_uncount(struct reef_state *state, uint32_t user,
			enum reef_limit limit, uint64_t less);

/* True if there is such a setting, and it may have that value. */
bool reef_setting_allows(uint32_t setting, uint64_t value);

struct reef_state_user *reef_state_user_of(const struct reef_state *state,
					   uint32_t id);
struct reef_state_node *reef_state_node_of(const struct reef_state *state,
					   uint32_t id);
struct reef_state_space *reef_state_space_of(const struct reef_state *state,
					     uint32_t id);
struct reef_state_extent *reef_state_extent_of(const struct reef_state *state,
					       uint32_t number);

/* Count an extent on a node; take it off one which has it no more. */
void reef_state_count_on_node(struct reef_state *state, uint32_t id,
			      uint64_t size);
void reef_state_uncount_on_node(struct reef_state *state, uint32_t id,
				uint64_t size);
/* Take an extent off its node, and off the target of its move. */
void reef_state_release_extent(struct reef_state *state,
			       struct reef_state_extent *extent);
/* Take an extent off its space, unless it is FORGOTTEN. */
void reef_state_uncount_in_space(struct reef_state *state,
				 const struct reef_state_extent *extent);
/* Check that the node may be given that many bytes more. */
int reef_state_check_placement(const struct reef_state *state, uint32_t id,
			       uint64_t size);
/* Check what every new extent has to keep: a size, and room at its node, in its
 * space, and in the table. */
int reef_state_check_new(struct reef_state *state,
			 const struct reef_record *record);
/* Put an extent where its number belongs, and count it everywhere. */
void reef_state_insert_extent(struct reef_state *state,
			      const struct reef_state_extent *extent);
int reef_state_check_space_add(struct reef_state *state,
			       const struct reef_record *record);
void reef_state_apply_space_add(struct reef_state *state,
				const struct reef_record *record);

/* --- copies.c --- */

/* A copy is given up. Its extent goes on with the other one's memory. Of one
 * that has none: LOST; a twin that nobody names is no more. Twins that go are
 * REMOVED, until they are swept. */
void reef_state_fail_copy(struct reef_state *state,
			  struct reef_state_extent *extent);
/* Take the extents that are REMOVED out of the table. */
void reef_state_sweep_removed(struct reef_state *state);
/* True if an extent may be on that node, or move there: its other copy is not
 * and does not. */
bool reef_state_may_lie_on(const struct reef_state *state,
			   const struct reef_state_extent *extent,
			   uint32_t node);
/* Note the labels of extents that were decoded, and check them and all pairs:
 * (12) and (13) of state.h.  -REEF_ECORRUPT, -ENOMEM. */
int reef_state_check_copies(struct reef_state *state);

/* An extent is LOST, wherever it was or moved to. */
void reef_state_lose_extent(struct reef_state *state,
			    struct reef_state_extent *extent);
/* Count one more extent of that size for a space, and for whose it is. */
void reef_state_count_in_space(struct reef_state *state,
			       struct reef_state_space *space, uint64_t size);

/* Remove a space with all that is in it. */
void reef_state_drop_space(struct reef_state *state,
			   struct reef_state_space *space);

#endif
