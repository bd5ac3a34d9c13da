package com.fasterxml.jackson.datatype.jsr310;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationContext;
import com.fasterxml.jackson.databind.deser.std.StdDeserializer;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.ser.std.ToStringSerializer;
import java.io.IOException;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.function.Function;

/**
 * Stands for the module of this name in jackson-datatype-jsr310, which no package of Debian has: it reads and
 * writes the two types of time that the generated client uses.
 */
public class JavaTimeModule extends SimpleModule {
    public JavaTimeModule() {
        add(OffsetDateTime.class, OffsetDateTime::parse);
        add(LocalDate.class, LocalDate::parse);
    }

    private <T> void add(Class<T> type, Function<String, T> parse) {
        addSerializer(type, ToStringSerializer.instance);
        addDeserializer(type, new StdDeserializer<T>(type) {
            @Override
            public T deserialize(JsonParser parser, DeserializationContext context) throws IOException {
                return parse.apply(parser.getText());
            }
        });
    }
}
