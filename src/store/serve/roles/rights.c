#include "store/serve/roles/rights.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Whether a role may access all models, or those below its prefix. */
enum {
    READ = 1,
    READ_SOME = 2,
    WRITE = 4,
    WRITE_SOME = 8,
    ADMIN = 16,
    ANYBODY = READ | READ_SOME | WRITE | WRITE_SOME | ADMIN,
    WHOLE = READ | WRITE | ADMIN, /* reveals other models or their bytes */
    CHANGE = WRITE | WRITE_SOME | ADMIN,
    NOBODY = 0
};

/* Every operation has its line. Those that take names check them as well (check_name), and those
 * that list show only what the role sees. */
static const uint8_t rights[LIGI_SERVED_OP_END] = {
    [LIGI_SERVED_PING] = ANYBODY,       [LIGI_SERVED_INFO] = ANYBODY,
    [LIGI_SERVED_RESOLVE] = ANYBODY,    [LIGI_SERVED_RELEASE] = ANYBODY,
    [LIGI_SERVED_MODELS] = ANYBODY,     [LIGI_SERVED_LINEAGE] = ANYBODY,
    [LIGI_SERVED_STAT] = ANYBODY,       [LIGI_SERVED_PACK_SIZE] = ANYBODY,
    [LIGI_SERVED_READ] = ANYBODY,       [LIGI_SERVED_DESCRIPTOR] = WHOLE,
    [LIGI_SERVED_UPDATE] = CHANGE,      [LIGI_SERVED_ALIAS] = CHANGE,
    [LIGI_SERVED_ALIAS_AT] = ANYBODY,   [LIGI_SERVED_RETIRE] = CHANGE,
    [LIGI_SERVED_LOCK] = CHANGE,        [LIGI_SERVED_CHECK] = ADMIN,
    [LIGI_SERVED_COMPACT] = ADMIN,      [LIGI_SERVED_FIND] = ANYBODY,
    [LIGI_SERVED_WATCH] = ANYBODY,      [LIGI_SERVED_SAVE] = CHANGE,
    [LIGI_SERVED_JOIN] = CHANGE,        [LIGI_SERVED_STAMPS] = WHOLE,
    [LIGI_SERVED_CLEAR_STAMPS] = ADMIN, [LIGI_SERVED_SHUTDOWN] = ADMIN,
    [LIGI_SERVED_CANCEL] = ANYBODY,     [LIGI_SERVED_NEED] = NOBODY,
    [LIGI_SERVED_DONE] = NOBODY,        [LIGI_SERVED_DATA] = CHANGE,
    [LIGI_SERVED_COMMIT] = CHANGE,      [LIGI_SERVED_RETIRE_NOW] = CHANGE,
    [LIGI_SERVED_RESTORE] = CHANGE,
};

int ligi_served_role_is_limited(const ligi_served_role *role)
{
    return role->prefix[0] != '\0';
}

static unsigned bit_of(const ligi_served_role *role)
{
    int some = ligi_served_role_is_limited(role);
    switch (role->kind) {
    case LIGI_ROLE_READ: return some ? READ_SOME : READ;
    case LIGI_ROLE_WRITE: return some ? WRITE_SOME : WRITE;
    case LIGI_ROLE_ADMIN: return ADMIN;
    default: return NOBODY;
    }
}

int ligi_rights_has(const ligi_served_role *role, uint32_t op)
{
    return op < LIGI_SERVED_OP_END && (rights[op] & bit_of(role)) != 0;
}

static int sees(const ligi_served_role *role, const char *model)
{
    return strncmp(model, role->prefix, strlen(role->prefix)) == 0;
}

static const char *describe(const ligi_served_role *role,
                            char text[LIGI_ROLE_NAME_BYTES + LIGI_ROLE_PREFIX_BYTES + 32])
{
    snprintf(text, LIGI_ROLE_NAME_BYTES + LIGI_ROLE_PREFIX_BYTES + 32, "'%s' (%s of '%s*')",
             role->name, ligi_served_role_kind_name(role->kind), role->prefix);
    return text;
}

lig_status ligi_rights_check(const ligi_served_role *role, uint32_t op)
{
    char who[LIGI_ROLE_NAME_BYTES + LIGI_ROLE_PREFIX_BYTES + 32];
    if (ligi_rights_has(role, op))
        return LIG_OK;
    return lig_fail(LIG_E_DENIED,
                    "permission denied: role %s may not '%s' (needs another role in "
                    "the server's secret file)",
                    describe(role, who), ligi_served_op_name(op));
}

lig_status ligi_rights_check_name(const ligi_served_role *role, uint32_t op, const char *name)
{
    char who[LIGI_ROLE_NAME_BYTES + LIGI_ROLE_PREFIX_BYTES + 32];
    LIG_TRY(ligi_rights_check(role, op));
    if (sees(role, name))
        return LIG_OK;
    return lig_fail(LIG_E_DENIED, "permission denied: role %s may not '%s' '%s'",
                    describe(role, who), ligi_served_op_name(op), name);
}
