//! Run-time loaded bindings to libfabric: the types that tickwire touches, and those they name.
//!
//! Only a handful of libfabric's functions are real symbols; they are found when [`Library::load`]
//! is called. Everything else goes through the op tables of libfabric's objects, as the inline
//! functions of the C headers do. So a build needs nothing installed, and a machine without
//! libfabric gets an error that says what to install.

mod types;

pub use types::*;

use std::ffi::{CStr, c_char, c_int};

/// The library to load instead of `libfabric.so.1`.
pub const LIBRARY_VARIABLE: &str = "TICKWIRE_LIBFABRIC";

/// The interface version that these types follow: `FI_VERSION(1, 17)`.
pub const API_VERSION: u32 = version(FI_MAJOR_VERSION, FI_MINOR_VERSION);

/// `FI_VERSION` of the C headers.
pub const fn version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

/// Why libfabric cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// The library is not there.
    Missing {
        /// What was looked for.
        path: String,
        /// The loader's words.
        reason: String,
    },
    /// A library was found that lacks a symbol.
    Symbol {
        /// The symbol.
        name: &'static str,
        /// The loader's words.
        reason: String,
    },
    /// The library is older than the types.
    TooOld {
        /// Its version.
        major: u32,
        /// Its version.
        minor: u32,
    },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { path, reason } => write!(f, "cannot load {path}: {reason}"),
            Self::Symbol { name, reason } => write!(f, "libfabric lacks {name}: {reason}"),
            Self::TooOld { major, minor } => {
                write!(f, "libfabric {major}.{minor} is too old: 1.17 or later is needed")
            }
        }
    }
}

impl std::error::Error for LoadError {}

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const fi_info,
    *mut *mut fi_info,
) -> c_int;

/// The loaded library. Objects made through it must be closed before it is dropped.
#[derive(Debug)]
pub struct Library {
    /// `fi_getinfo(3)`.
    pub getinfo: GetInfo,
    /// `fi_freeinfo`.
    pub freeinfo: unsafe extern "C" fn(*mut fi_info),
    /// `fi_dupinfo`; `fi_allocinfo` of the headers is this with null.
    pub dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    /// `fi_fabric(3)`.
    pub fabric: unsafe extern "C" fn(
        *mut fi_fabric_attr,
        *mut *mut fid_fabric,
        *mut std::ffi::c_void,
    ) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    version: u32,
    _library: libloading::Library,
}

impl Library {
    /// Loads `libfabric.so.1`, or what [`LIBRARY_VARIABLE`] names.
    #[allow(unsafe_code)]
    pub fn load() -> Result<Self, LoadError> {
        let path = std::env::var(LIBRARY_VARIABLE).unwrap_or_else(|_| "libfabric.so.1".into());
        // SAFETY: loading runs the library's initialisers; whoever installed libfabric or named
        // another library answers for those.
        let library = unsafe { libloading::Library::new(&path) }
            .map_err(|error| LoadError::Missing { path, reason: error.to_string() })?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the type is that of the symbol in libfabric's headers.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|error| LoadError::Symbol { name: $name, reason: error.to_string() })?
            };
        }
        let fi_version: unsafe extern "C" fn() -> u32 = symbol!("fi_version");
        // SAFETY: `fi_version` takes nothing and only reads a constant.
        let version = unsafe { fi_version() };
        let (major, minor) = (version >> 16, version & 0xFFFF);
        if major < FI_MAJOR_VERSION || (major == FI_MAJOR_VERSION && minor < FI_MINOR_VERSION) {
            return Err(LoadError::TooOld { major, minor });
        }
        Ok(Self {
            getinfo: symbol!("fi_getinfo"),
            freeinfo: symbol!("fi_freeinfo"),
            dupinfo: symbol!("fi_dupinfo"),
            fabric: symbol!("fi_fabric"),
            strerror: symbol!("fi_strerror"),
            version,
            _library: library,
        })
    }

    /// Major and minor version of the loaded library.
    pub fn version(&self) -> (u32, u32) {
        (self.version >> 16, self.version & 0xFFFF)
    }

    /// The text for a (positive or negative) libfabric error number.
    #[allow(unsafe_code)]
    pub fn error_text(&self, code: i64) -> String {
        let code = c_int::try_from(code.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: `fi_strerror` takes any number and gives a static string.
        let text = unsafe { CStr::from_ptr((self.strerror)(code)) };
        text.to_string_lossy().into_owned()
    }
}
