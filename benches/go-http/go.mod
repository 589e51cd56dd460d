module go-http

go 1.19
