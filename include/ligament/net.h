/* Ligament: the transports that can carry a mesh's messages. mesh.h chooses among them; this header is for
 * inspection. */
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

/* LIG_OK if the transport works on this machine; otherwise the status and error text say why not (for example,
 * a library that is not installed). */
LIG_API lig_status lig_transport_check(const char *name);

/* A one-line description of the transport; "" if it cannot be loaded. */
LIG_API const char *lig_transport_help(const char *name);

/* Fills the option with this number and returns 1; 0 past the last, or if the transport cannot be loaded. */
LIG_API int lig_transport_option_get(const char *name, size_t index, lig_transport_option *option);

#ifdef __cplusplus
}
#endif
#endif
