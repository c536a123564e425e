//! Run-time loaded bindings to libfabric.
