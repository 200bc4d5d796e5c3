/* Whether UCX is worth more than tcp here. Pure. */
#ifndef LIGI_UCX_DEVICE_H
#define LIGI_UCX_DEVICE_H

/* Looks through what ucp_context_print_info writes. 1 when UCX has a resource that moves memory
 * between hosts by hardware (InfiniBand, RoCE, EFA); 0 for a text that it cannot read. */
int ligi_ucx_device_in(const char *text);

#endif
