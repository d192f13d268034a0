module sentinel.test/gotemplate

go 1.23
