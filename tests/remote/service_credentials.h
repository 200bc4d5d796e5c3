/* Access keys of the servers that tools/engines started, as the command line would set them. */
#ifndef SERVICE_CREDENTIALS_H
#define SERVICE_CREDENTIALS_H

#include <ligament/credentials.h>

#include <stdlib.h>

static inline lig_status set_service_credentials(void)
{
    LIG_TRY(lig_credential_set("s3.access_key", getenv("LIGAMENT_TEST_S3_KEY")));
    LIG_TRY(lig_credential_set("s3.secret_key", getenv("LIGAMENT_TEST_S3_SECRET")));
    LIG_TRY(lig_credential_set("s3.endpoint", getenv("LIGAMENT_TEST_S3_ENDPOINT")));
    return lig_credential_set("s3.region", getenv("LIGAMENT_TEST_S3_REGION"));
}

#endif
