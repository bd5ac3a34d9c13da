export PERDIEM_URL=http://127.0.0.1:8080
read -rs PERDIEM_KEY && export PERDIEM_KEY
