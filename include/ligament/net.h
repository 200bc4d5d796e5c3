/* Ligament: what can carry a mesh's messages. mesh.h chooses among the transports; this is for looking at them. */
#ifndef LIGAMENT_NET_H
#define LIGAMENT_NET_H

#include <ligament/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lig_transport_option { /* of an address: scheme://...?name=value */
    const char *name;
    const char *kind; /* "bool", "int", "bytes", "text" */
    const char *fallback;
    const char *help;
} lig_transport_option;

/* The names of the transports by number, NULL past the last. Static storage, like all texts here. */
LIG_API const char *lig_transport_name(size_t index);

/* LIG_OK when the transport works on this machine; otherwise the status and the sentence say why it does not (a library
 * that is not installed). */
LIG_API lig_status lig_transport_check(const char *name);

/* One sentence on the transport; "" when it cannot be loaded. */
LIG_API const char *lig_transport_help(const char *name);

/* Fills the option with this number and returns 1; 0 past the last, or when the transport cannot be loaded. */
LIG_API int lig_transport_option_get(const char *name, size_t index, lig_transport_option *option);

#ifdef __cplusplus
}
#endif
#endif
