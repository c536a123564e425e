//! `include/tickwire.h` is what cbindgen makes of `src/ffi`. `TICKWIRE_WRITE_HEADER=1 cargo test
//! --test header` writes it anew.

use std::path::Path;

fn generate(root: &Path) -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        include_guard: Some("TICKWIRE_H".into()),
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::C,
        line_length: 100,
        header: Some(
            "/* tickwire: reliable messages at microsecond latency over unreliable datagrams.\n \
             * Made from src/ffi by cbindgen; docs/c-interface.md explains it. */"
                .into(),
        ),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(String::from).to_vec(),
        ..Default::default()
    };
    config.enumeration.prefix_with_name = false;
    config.export.item_types = vec![
        cbindgen::ItemType::Constants,
        cbindgen::ItemType::Enums,
        cbindgen::ItemType::Structs,
        cbindgen::ItemType::OpaqueItems,
        cbindgen::ItemType::Typedefs,
        cbindgen::ItemType::Functions,
    ];
    // The other files are its modules.
    let builder =
        cbindgen::Builder::new().with_config(config).with_src(root.join("src/ffi/mod.rs"));
    let mut out = Vec::new();
    builder.generate().expect("the interface can be told in C").write(&mut out);
    String::from_utf8(out).expect("C is text")
}

#[test]
fn header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/tickwire.h");
    let fresh = generate(root);
    if std::env::var_os("TICKWIRE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &fresh).expect("the header is writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == fresh,
        "include/tickwire.h is not what src/ffi makes it: TICKWIRE_WRITE_HEADER=1 cargo test \
         --test header"
    );
}
