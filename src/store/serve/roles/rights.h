/* The rights of a role: one per operation of the protocol, and one prefix of names. Pure. */
#ifndef LIGI_RIGHTS_H
#define LIGI_RIGHTS_H

#include "store/serve/message/served_head.h"
#include "store/serve/roles/role_file.h"

/* 1 if the role may use the operation at all. An operation without an entry is denied to all
 * roles. */
int ligi_rights_has(const ligi_served_role *role, uint32_t op);
/* 1 if the role sees only the models below a prefix. */
int ligi_served_role_is_limited(const ligi_served_role *role);

/* LIG_E_DENIED, with the names of role and operation. */
lig_status ligi_rights_check(const ligi_served_role *role, uint32_t op);
/* Likewise for a model (or alias, or lock) of that name, which the operation reads or changes. */
lig_status ligi_rights_check_name(const ligi_served_role *role, uint32_t op, const char *name);

#endif
