#include "group/peer_connect.h"

#include "group/group_info.h"
#include "net/link/link_connect.h"

lig_status ligi_group_connect(ligi_group *group, ligi_net *net, uint32_t rank,
                              const ligi_connect *how, uint32_t *incarnation, ligi_link **link)
{
    uint8_t card[LIGI_BLOB_BYTES_MAX];
    ligi_connect connect = *how;
    ligi_member member;
    LIG_TRY(ligi_group_member(group, LIGI_SERVER, rank, &member));
    *incarnation = member.incarnation;
    LIG_TRY(ligi_group_blob(group, LIGI_SERVER, rank, card, &connect.card_bytes));
    connect.card = card;
    return ligi_net_connect(net, &connect, link);
}
