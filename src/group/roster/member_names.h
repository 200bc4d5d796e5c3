/* Names of roles and members, for messages. */
#ifndef LIGI_MEMBER_NAMES_H
#define LIGI_MEMBER_NAMES_H

#include "group/group.h"

/* "server 0", "worker 12 on host-b (pid 77)": for error texts. Returns `text`. */
const char *ligi_member_text(const ligi_member *member, char *text, size_t text_bytes);
const char *ligi_role_name(ligi_role role);

#endif
