//! The macros that read the table.

/// Defines the path constants and operations of one topic; see the [module](super) for the grammar.
macro_rules! define_operations {
    (
        base: $base:literal;
        $(
            $constant:ident = $path:literal {
                $(
                    $(#[doc = $summary:literal])+
                    $method:ident $id:ident: $Operation:ident {
                        scope: $scope:ident,
                        $(path: $path_id:ty,)?
                        $(query: $query:ty,)?
                        $(body: $body:ty = $example:expr,)?
                        answer: $answer:ty = $about:literal,
                        $(errors: [$($status:literal => $error:expr),* $(,)?],)?
                        $(links: [$($to:ident . $parameter:ident = $pointer:literal),* $(,)?],)?
                        $(check: $check:expr,)?
                        $(idempotent: $idempotent:literal,)?
                        $(long: $long:literal,)?
                        $(client: $client:ident,)?
                        $(scheduler: $scheduler:ident,)?
                    }
                )+
            }
        )+
    ) => {
        pub(crate) mod paths {
            $(
                #[doc = concat!("The path of", $(" `", stringify!($id), "`",)+ ".")]
                pub const $constant: &str = concat!($base, $path);
            )+
        }

        /// The operations of this topic.
        pub(super) const ALL: &[$crate::operations::Info] = &[
            $($(<$Operation as $crate::operations::Operation>::INFO,)+)+
        ];

        $($(
            $(#[doc = $summary])+
            #[derive(Clone, Copy, Debug)]
            pub struct $Operation;

            impl $crate::operations::Operation for $Operation {
                type Path = given!($($path_id)?; ());
                type Query = given!($($query)?; ());
                type Body = given!($($body)?; ());
                type Answer = $answer;

                const INFO: $crate::operations::Info = $crate::operations::Info {
                    id: stringify!($id),
                    method: method!($method),
                    path: paths::$constant,
                    summary: concat!($($summary),+).trim_ascii(),
                    access: access!($scope),
                    idempotent: method!($method).is_idempotent() $(|| $idempotent)?,
                    long: false $(|| $long)?,
                    parameters: <Self::Query as $crate::operations::query::QueryString>::PARAMETERS,
                    answer: $about,
                    errors: &[$($(($status, $error)),*)?],
                    links: &[$($($crate::operations::Link {
                        operation: stringify!($to),
                        parameter: stringify!($parameter),
                        pointer: $pointer,
                    }),*)?],
                };

                $(
                    fn example() -> Option<::serde_json::Value> {
                        Some($example)
                    }
                )?

                $(
                    fn check(body: &$crate::operations::BodyOf<Self>) -> Vec<$crate::FieldError> {
                        let check: fn(&$crate::operations::BodyOf<Self>) -> Vec<$crate::FieldError> = $check;
                        check(body)
                    }
                )?
            }
        )+)+
    };
}

/// Hands to the macro in brackets what other crates need of each entry of a topic, in a form without optional parts: each part
/// that an entry may leave out stands in brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! summarize_operations {
    (
        [$($read:tt)+]
        base: $base:literal;
        $(
            $constant:ident = $path:literal {
                $(
                    $(#[doc = $summary:literal])+
                    $method:ident $id:ident: $Operation:ident {
                        scope: $scope:ident,
                        $(path: $path_id:ty,)?
                        $(query: $query:ty,)?
                        $(body: $body:ty = $example:expr,)?
                        answer: $answer:ty = $about:literal,
                        $(errors: $errors:tt,)?
                        $(links: $links:tt,)?
                        $(check: $check:expr,)?
                        $(idempotent: $idempotent:literal,)?
                        $(long: $long:literal,)?
                        $(client: $client:ident,)?
                        $(scheduler: $scheduler:ident,)?
                    }
                )+
            }
        )+
    ) => {
        $($read)+! {
            $($({
                $Operation $id [$($summary)+]
                path: [$($path_id)?] query: [$($query)?] body: [$($body)?]
                client: [$($client)?] scheduler: [$($scheduler)?]
            })+)+
        }
    };
}

/// A type that an entry may leave out.
macro_rules! given {
    (; $default:ty) => {
        $default
    };
    ($given:ty; $default:ty) => {
        $given
    };
}

macro_rules! method {
    (get) => {
        $crate::operations::Method::Get
    };
    (post) => {
        $crate::operations::Method::Post
    };
    (put) => {
        $crate::operations::Method::Put
    };
    (delete) => {
        $crate::operations::Method::Delete
    };
}

macro_rules! access {
    (Open) => {
        $crate::operations::Access::Open
    };
    (AnyToken) => {
        $crate::operations::Access::AnyToken
    };
    ($scope:ident) => {
        $crate::operations::Access::Scope($crate::Scope::$scope)
    };
}

/// Lets a type be read from and written to a query. Each parameter is a field, with its description and its
/// [`Kind`](super::query::Kind), which both the check and the OpenAPI document follow. The first form defines the type,
/// too; the second takes one that exists.
macro_rules! query_parameters {
    (
        $(#[$about:meta])*
        pub struct $Query:ident {
            $(
                #[doc = $description:literal]
                pub $field:ident: $type:ty = $kind:expr,
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $Query {
            $(
                #[doc = $description]
                pub $field: $type,
            )+
        }

        query_parameters! { impl $Query { $($description $field = $kind,)+ } }
    };
    (impl $Query:ident { $($description:literal $field:ident = $kind:expr,)+ }) => {
        impl $crate::operations::query::QueryString for $Query {
            const PARAMETERS: &'static [$crate::operations::query::Parameter] = &[
                $($crate::operations::query::Parameter {
                    name: stringify!($field),
                    description: $description.trim_ascii(),
                    kind: $kind,
                },)+
            ];

            fn read(
                reader: &mut $crate::operations::query::Reader<'_>,
            ) -> Result<Self, $crate::ApiError> {
                let mut parameters = Self::PARAMETERS.iter();
                Ok(Self {
                    $($field: reader.take(parameters.next().expect("one for each field"))?,)+
                })
            }

            fn write(&self, writer: &mut $crate::operations::query::Writer) {
                $(writer.add(stringify!($field), &self.$field);)+
            }
        }
    };
}

pub(crate) use {access, define_operations, given, method, query_parameters};
