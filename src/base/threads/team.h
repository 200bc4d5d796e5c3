/* A few threads that share the work of one call and sleep between calls. Shared: of several callers
 * at a time, one has the threads, and the others do their work alone. */
#ifndef LIGI_TEAM_H
#define LIGI_TEAM_H

#include <ligament/base.h>

#include <stddef.h>

#define LIGI_TEAM_MAX 64

typedef struct ligi_team ligi_team;

/* `member` is less than ligi_team_size: memory of a member is used by one thread at a time. */
typedef void (*ligi_team_work)(void *context, size_t part, unsigned member);

/* The caller and up to `size` - 1 threads, which the first call that shares work starts; `size` is
 * at most LIGI_TEAM_MAX, and 0 means the processors of this process, but at most 8. */
lig_status ligi_team_create(ligi_team **team, unsigned size);
/* Joins. Accepts NULL. */
void ligi_team_destroy(ligi_team *team);
/* The same in a forked child, which lacks the threads. */
void ligi_team_forget(ligi_team *team);

/* 1 for NULL. */
unsigned ligi_team_size(const ligi_team *team);
/* Calls `work` for the parts 0 .. count - 1, and returns when all have ended. NULL: one by one. */
void ligi_team_run(ligi_team *team, ligi_team_work work, void *context, size_t count);

typedef lig_status (*ligi_team_attempt)(void *context, size_t part, unsigned member);
/* The same with a team for this call only (`size` as for create). After a part has failed, no other
 * begins; returns the first failure. Without memory or threads for a team it only takes longer. */
lig_status ligi_team_once(unsigned size, ligi_team_attempt attempt, void *context, size_t count);

#endif
