/* Ligament: includes all public headers. base.h defines the terms that their comments use. */
#ifndef LIGAMENT_LIGAMENT_H
#define LIGAMENT_LIGAMENT_H

#include <ligament/backend.h>
#include <ligament/base.h>
#include <ligament/checkpoint.h>
#include <ligament/credentials.h>
#include <ligament/device_rows.h>
#include <ligament/mesh.h>
#include <ligament/mesh_flags.h>
#include <ligament/net.h>
#include <ligament/params.h>
#include <ligament/pipe.h>
#include <ligament/secret.h>
#include <ligament/serve.h>
#include <ligament/store.h>
#include <ligament/tensor.h>

#endif
