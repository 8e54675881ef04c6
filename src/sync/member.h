/* member.h - numbers for the participants of one process in one object.
 *
 * Two participants of a process share its session; the member number tells
 * them apart. It is free again when the participant is closed, and by then none
 * of its words is left in the object.
 *
 * Thread: any. */
#ifndef REEF_SYNC_MEMBER_H
#define REEF_SYNC_MEMBER_H

#include <stdint.h>

/* Take a number, 1 to SYNC_MEMBERS_MAX, of session in the object at that
 * address.  -ENOSPC: all are taken.  -ENOMEM. */
int sync_member_take(uint32_t session, uint64_t object, uint16_t *member);
/* Give a number back. */
void sync_member_give(uint32_t session, uint64_t object, uint16_t member);

#endif
