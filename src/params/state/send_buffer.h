/* Buffers for outgoing payloads: taken from a pool of the node, returned when sent. */
#ifndef LIGI_SEND_BUFFER_H
#define LIGI_SEND_BUFFER_H

#include "params/state/node.h"

void ligi_send_buffers_fini(lig_params *node);

lig_status ligi_send_buffer_take(lig_params *node, uint64_t bytes, ligi_send_buffer **buffer);
void ligi_send_buffer_drop(lig_params *node, ligi_send_buffer *buffer); /* NULL is valid */

#endif
