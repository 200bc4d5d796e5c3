#include "group/roster/member_names.h"

#include "group/group.h"

#include <stdio.h>

const char *ligi_role_name(ligi_role role)
{
    return role == LIGI_SERVER ? "server" : role == LIGI_WORKER ? "worker" : "scheduler";
}

const char *ligi_member_text(const ligi_member *member, char *text, size_t text_bytes)
{
    if (member->state == LIGI_AWAITED || member->host[0] == '\0')
        snprintf(text, text_bytes, "%s %u", ligi_role_name(member->role), member->rank);
    else
        snprintf(text, text_bytes, "%s %u on %s (pid %u)", ligi_role_name(member->role),
                 member->rank, member->host, member->pid);
    return text;
}
