/* The suites of the store over a served store. A suite that is compiled with SCENE_SERVED ("tcp" or
 * "shm") opens its places through servers in this process, one that is compiled with SCENE_REMOTE
 * (seconds of grace) opens them on a storage service in memory. What a served store cannot have, or
 * what the test does to the folder itself, begins with scene_local_only. */
#ifndef SERVED_SCENE_H
#define SERVED_SCENE_H

#include "store/engine_scene.h"

#ifdef SCENE_SERVED

#include <ligament/serve.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SCENE_SERVERS = 64 };

typedef struct scene_server {
    char place[256];
    lig_server *server;
} scene_server;

static scene_server scene_servers[SCENE_SERVERS];
static size_t scene_server_count;

/* The server of a place; each "mem:" has one of its own. */
static inline lig_status scene_serve(const char *place, const char **address)
{
    for (size_t i = 0; i < scene_server_count && strcmp(place, "mem:") != 0; i++)
        if (strcmp(scene_servers[i].place, place) == 0) {
            *address = lig_server_address(scene_servers[i].server);
            return LIG_OK;
        }
    scene_server *made = &scene_servers[scene_server_count];
    if (scene_server_count == SCENE_SERVERS)
        return lig_fail(LIG_E_LIMIT, "more than %d servers in one test", SCENE_SERVERS);
#ifdef SCENE_ENGINE
    char engine[768];
    scene_place(place, engine, sizeof engine);
    LIG_TRY(lig_server_open(&made->server, engine, NULL));
#else
    LIG_TRY(lig_server_open(&made->server, place, NULL));
#endif
    snprintf(made->place, sizeof made->place, "%s", place);
    *address = lig_server_address(made->server);
    scene_server_count++;
    return LIG_OK;
}

static inline lig_status scene_open(lig_store **store, const char *uri)
{
    char place[256], text[512];
    const char *address, *query = strchr(uri, '?');
    if (strncmp(uri, "mem:", 4) != 0 && strncmp(uri, "file:", 5) != 0)
        return lig_store_open(store, uri);
    snprintf(place, sizeof place, "%.*s", (int)(query ? query - uri : (long)strlen(uri)), uri);
    LIG_TRY(scene_serve(place, &address));
    snprintf(text, sizeof text, "ligament://%s?transport=" SCENE_SERVED "%s%s", address,
             query ? "&" : "", query ? query + 1 : "");
    return lig_store_open(store, text);
}
#define lig_store_open scene_open

static inline void scene_end_servers(void)
{
    while (scene_server_count)
        lig_server_close(scene_servers[--scene_server_count].server);
}

/* A client sends a release and continues; the server handles it soon. */
#define scene_eventually(condition)                                                                \
    do {                                                                                           \
        time_t scene_until_ = time(NULL) + 60;                                                     \
        while (!(condition) && time(NULL) < scene_until_)                                          \
            sched_yield();                                                                         \
    } while (0)
#define scene_local_only() skip()
#define SCENE_IS_SERVED 1
#ifdef SCENE_ENGINE
#define SCENE_IN_FOLDER 0
#else
#define SCENE_IN_FOLDER 1
#endif
#define SCENE_FAST "" /* options of the place are the server's */

#elif defined(SCENE_REMOTE)

#include "remote/trial_engine.h"

/* Folders become places of a service in memory; so do places in memory that have a name. */
static inline lig_status scene_open(lig_store **store, const char *uri)
{
    char text[512];
    const char *query = strchr(uri, '?');
    int folder = strncmp(uri, "file://", 7) == 0;
    if (!folder && (strncmp(uri, "mem:", 4) != 0 || uri[4] == '\0'))
        return lig_store_open(store, uri);
    LIG_TRY(trial_register());
    snprintf(text, sizeof text, "trial:%.*s?grace=" SCENE_REMOTE "%s%s",
             (int)((query ? query - uri : (long)strlen(uri)) - 4), uri + 4, query ? "&" : "",
             query ? query + 1 : "");
    return lig_store_open(store, text);
}
#define lig_store_open scene_open

#define scene_end_servers() trial_end()
#define scene_eventually(condition) (void)0
#define scene_local_only() skip()
#define SCENE_IS_SERVED 0
#define SCENE_IN_FOLDER 0 /* no files to be counted */
#define SCENE_FAST ""

#elif defined(SCENE_ENGINE)

static inline lig_status scene_open(lig_store **store, const char *uri)
{
    char text[768];
    if (!scene_is_place(uri))
        return lig_store_open(store, uri);
    scene_place(uri, text, sizeof text);
    return lig_store_open(store, text);
}
#define lig_store_open scene_open

#define scene_end_servers() (void)0
#define scene_eventually(condition) (void)0
#define scene_local_only() skip()
#define SCENE_IS_SERVED 0
#define SCENE_IN_FOLDER 0
#define SCENE_FAST ""
#else
#define scene_eventually(condition) (void)0
#define scene_local_only() (void)0
#define scene_end_servers() (void)0
#define SCENE_IS_SERVED 0
#define SCENE_IN_FOLDER 1
#define SCENE_FAST "?fsync=0"
#endif

#endif
