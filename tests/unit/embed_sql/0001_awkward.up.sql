-- Text that CMake and C++ could misread: ${PROJECT_NAME} @PROJECT_NAME@
-- $<CONFIG> ; [ ]] [=[ "quotes" \ \n )" )migration R"( // /* %d
CREATE TABLE awkward (a TEXT DEFAULT 'x;y', b TEXT CHECK (b <> '\'));
