package org.openapitools.client;

import com.fasterxml.jackson.databind.module.SimpleModule;

/** Stands for the generated class of this name, which only changes what jackson-datatype-jsr310 reads. */
public class RFC3339JavaTimeModule extends SimpleModule {}
