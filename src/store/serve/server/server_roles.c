#include "store/serve/server/server_roles.h"

#include "base/boot.h"
#include "base/error.h"
#include "base/log.h"
#include "net/link/key_binding.h"
#include "store/serve/roles/rights.h"
#include "store/serve/server/server_session.h"

#include <stdlib.h>
#include <string.h>

enum { DENIALS_LOGGED = 100 }; /* of one session: a client must not fill the log */

/* --- the file --- */

lig_status ligi_served_roles_open(lig_server *server)
{
    server->next_tag = 1;
    if (server->secret_file == NULL)
        return LIG_OK;
    ligi_served_role_file none = {0};
    LIG_TRY(ligi_served_role_file_read(server->secret_file, &server->roles));
    ligi_served_role_file_number(&server->roles, &none, &server->next_tag);
    return LIG_OK;
}

static lig_status accept_keys(lig_server *server, const ligi_served_role_file *roles)
{
    ligi_net_peer_secret *secrets;
    LIG_TRY(ligi_calloc(&secrets, roles->count + 1, sizeof *secrets, "roles"));
    for (size_t i = 0; i < roles->count; i++)
        secrets[i] = (ligi_net_peer_secret){roles->lines[i].key, roles->lines[i].key_bytes,
                                            roles->lines[i].role.tag};
    lig_status status = ligi_net_accept_secrets(server->net, secrets, roles->count);
    free(secrets);
    return status;
}

lig_status ligi_served_roles_accept(lig_server *server)
{
    return accept_keys(server, &server->roles);
}

/* With the endpoint's lock: no client connects in between. */
static lig_status replace(lig_server *server, ligi_served_role_file *roles)
{
    LIG_TRY(accept_keys(server, roles));
    ligi_served_role_file before = server->roles;
    server->roles = *roles;
    *roles = before;
    ligi_served_session *next;
    for (ligi_served_session *session = server->sessions; session; session = next) {
        next = session->after;
        if (ligi_served_role_file_find(&server->roles, session->role.tag))
            continue;
        ligi_log(LIG_LOG_INFO,
                 "role '%s' was changed or removed: the session of client %u on %s "
                 "ends",
                 session->role.name, session->pid, session->host);
        ligi_served_session_end(session, "the role was changed or removed in the server's secret "
                                         "file");
    }
    return LIG_OK;
}

lig_status ligi_served_roles_reload(lig_server *server)
{
    ligi_served_role_file roles = {0};
    if (server->secret_file == NULL)
        return LIG_OK;
    LIG_TRY(ligi_served_role_file_read(server->secret_file, &roles));
    ligi_net_lock(server->net);
    ligi_served_role_file_number(&roles, &server->roles, &server->next_tag);
    lig_status status = replace(server, &roles);
    ligi_net_unlock(server->net);
    ligi_served_role_file_fini(&roles);
    return status;
}

void ligi_served_roles_close(lig_server *server)
{
    ligi_served_role_file_fini(&server->roles);
}

/* --- identity --- */

/* 1 if both are the same and not all zero; takes the same time for all. */
static int same_pass(const uint8_t *a, const uint8_t *b)
{
    unsigned differ = 0, any = 0;
    for (size_t i = 0; i < LIGI_SERVED_PASS_BYTES; i++) {
        differ |= a[i] ^ b[i];
        any |= a[i];
    }
    return differ == 0 && any != 0;
}

static lig_status role_of_pass(lig_server *server, const uint8_t *pass, ligi_served_role *role)
{
    for (ligi_served_session *session = server->sessions; session; session = session->after) {
        if (!same_pass(session->pass, pass))
            continue;
        memset(session->pass, 0, sizeof session->pass);
        *role = session->role;
        return LIG_OK;
    }
    return lig_fail(LIG_E_DENIED, "shared-memory connections need the token that the client "
                                  "receives over TCP: connect over TCP first");
}

lig_status ligi_served_role_of(lig_server *server, const ligi_link *link,
                               const ligi_served_hello *hello, ligi_served_role *role)
{
    uint64_t tag = ligi_link_tag(link);
    if (server->roles.count == 0) {
        *role = (ligi_served_role){.kind = LIGI_ROLE_ADMIN};
        return LIG_OK;
    }
    if (tag == 0)
        return role_of_pass(server, hello->pass, role);
    const ligi_served_role *found = ligi_served_role_file_find(&server->roles, tag);
    if (found == NULL)
        return lig_fail(LIG_E_DENIED, "the client's key was removed from the server's secret file");
    *role = *found;
    return LIG_OK;
}

lig_status ligi_served_pass_make(ligi_served_session *session)
{
    if (session->role.tag == 0 || !session->same_host || ligi_link_tag(session->link) == 0)
        return LIG_OK;
    return ligi_random(session->pass, sizeof session->pass);
}

/* --- rights --- */

lig_status ligi_served_denied(ligi_served_session *session, lig_status status)
{
    if (status == LIG_E_DENIED && atomic_fetch_add(&session->denials, 1) < DENIALS_LOGGED)
        ligi_log(LIG_LOG_WARNING, "client %u on %s: %s", session->pid, session->host,
                 lig_error_text());
    return status;
}

lig_status ligi_served_may(ligi_served_session *session, uint32_t op)
{
    return ligi_served_denied(session, ligi_rights_check(&session->role, op));
}

lig_status ligi_served_may_name(ligi_served_call *call, const char *name)
{
    if (name == NULL)
        return LIG_OK;
    return ligi_served_denied(
        call->session, ligi_rights_check_name(&call->session->role, call->job->head.op, name));
}

const char *ligi_served_scope(const ligi_served_session *session)
{
    return ligi_served_role_is_limited(&session->role) ? session->role.prefix : NULL;
}
