//! Integration: the tests that `object_store` has for stores, as far as `LocalFileSystem` passes them.

macro_rules! integration {
    ($version:ident) => {
        mod $version {
            use headwater_object_store::$version::HeadwaterFileSystem;
            use headwater_object_store::$version::object_store::integration::*;

            use crate::rig::{engines, folder, run};

            /// Goal: the store passes what `LocalFileSystem` passes. Method: the tests that it runs on itself, on each driver.
            #[test]
            fn the_tests_of_object_store_pass() {
                for engine in engines() {
                    let folder = folder();
                    let store =
                        HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(&engine);
                    run("the tests of object_store", async {
                        put_get_delete_list(&store).await;
                        list_with_offset_exclusivity(&store).await;
                        get_opts(&store).await;
                        list_uses_directories_correctly(&store).await;
                        list_with_delimiter(&store).await;
                        rename_and_copy(&store).await;
                        copy_if_not_exists(&store).await;
                        copy_rename_nonexistent_object(&store).await;
                        stream_get(&store).await;
                        put_opts(&store, false).await;
                    });
                }
            }
        }
    };
}

integration!(v0_13);
integration!(v0_14);
