//! The filter of lists by metadata. The parameter's name contains the name of the member.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::schema::{AdditionalProperties, Object, Type};
use utoipa::openapi::{ObjectBuilder, Required};

use super::faults::Faults;
use api::problem::InvalidPart;
use domain::claim::MetadataFilter;

const NAME: &str = "metadata.<name>";

const DESCRIPTION: &str = "Only grants with this member in their metadata, such as \
    `metadata.order=A-17`. The member is at the top level. Its value is a text, or a number or a \
    bool as JSON writes it. Corrections have no metadata. Requires `policy` and a span of at most 92 \
    days: `on`, or `from` and `to`.";

/// The parameters of a query that begin with `metadata.`.
#[derive(Debug, Deserialize)]
#[serde(from = "BTreeMap<String, String>")]
pub struct MetadataQuery(Vec<(String, String)>);

impl From<BTreeMap<String, String>> for MetadataQuery {
    fn from(parameters: BTreeMap<String, String>) -> Self {
        let members = parameters.into_iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("metadata.")?;
            Some((name.to_owned(), value))
        });
        Self(members.collect())
    }
}

impl MetadataQuery {
    pub fn check(&self, faults: &mut Faults) -> Option<MetadataFilter> {
        let (name, value) = self.0.first()?;
        if self.0.len() > 1 {
            faults.add(InvalidPart::parameter(NAME, "name only one member"));
        }
        faults.parameter(NAME, Some(value), |value| MetadataFilter::new(name, value))
    }
}

/// For OpenAPI this is one parameter, an object whose members are sent as parameters of their own.
/// The name of the object is not sent.
impl IntoParams for MetadataQuery {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let names = text().pattern(Some("^metadata\\.[^\"\\\\\\u0000]+$"));
        let members: Object = ObjectBuilder::new()
            .property_names(Some(names))
            .additional_properties(Some(AdditionalProperties::RefOr(text().into())))
            .max_properties(Some(1))
            .build();
        let parameter = ParameterBuilder::new()
            .name(NAME)
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .style(Some(ParameterStyle::Form))
            .explode(Some(true))
            .description(Some(DESCRIPTION))
            .schema(Some(members));
        vec![parameter.build()]
    }
}
